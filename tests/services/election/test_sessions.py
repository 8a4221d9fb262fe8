"""Elections when a master or its connection fails: SUSPENDED keeps the grants, LOST revokes them.

A master relies on its own clock: it stops deciding before another one can be elected, and gives up its grants when its
session may have expired, without a notification.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import msgspec
import pytest
from polling import wait_until

from tailrace.infra.zookeeper import EmbeddedZooKeeper
from tailrace.services.election.client import Client
from tailrace.services.election.paths import Paths
from tailrace.services.election.settings import ZooKeeperSettings

from ...fault_injection.network_link import NetworkConnection, NetworkLink
from .masters import ROLE, Master, onlooker, tree

pytestmark = pytest.mark.integration

Make = Callable[[ZooKeeperSettings], Master]


@pytest.fixture
def link(zookeeper: EmbeddedZooKeeper) -> Iterator[NetworkLink]:
    """Returns the first master's link to ZooKeeper."""
    with NetworkLink(zookeeper.connect_string) as link:
        yield link


def through(link: NetworkLink, settings: ZooKeeperSettings, session_s: float) -> ZooKeeperSettings:
    return msgspec.structs.replace(
        settings, quorum=link.address, session_timeout_s=session_s, connection_timeout_s=2.0
    )


class Forgetful(NetworkLink):
    """Accepts connections and never answers them while it `forgets`."""

    forgets = 0

    def _conversation(self) -> NetworkConnection:
        if self.forgets == 0:
            return super()._conversation()
        self.forgets -= 1
        return _Forgotten()


class _Forgotten(NetworkConnection):
    def answers(self, server: socket.socket) -> Iterator[bytes]:
        for _ in super().answers(server):
            yield b""


def lasting(settings: ZooKeeperSettings, session_s: float) -> ZooKeeperSettings:
    return msgspec.structs.replace(settings, session_timeout_s=session_s)


def test_master_that_reconnects_before_session_expiry_keeps_epoch(
    settings: ZooKeeperSettings, masters: Make, link: NetworkLink
) -> None:
    one, other = masters(through(link, settings, 30.0)), masters(settings)
    one.join()
    epoch = one.leads()
    other.join()
    with onlooker(settings) as kazoo:
        wait_until(lambda: len(tree(kazoo, Paths.from_settings(settings).latch)) == 2)
        wait_until(lambda: kazoo.exists(Paths.from_settings(settings).leader(ROLE)))
        before = tree(kazoo, settings.cluster_path)
        for _ in range(3):
            granted = one.granted
            link.sever()
            wait_until(lambda: one.is_suspended)
            assert one.granted == granted
            link.heal()
            wait_until(lambda: one.believes())
            assert one.granted == granted
        assert one.epoch() == epoch
        assert not other.granted
        assert tree(kazoo, settings.cluster_path) == before


def test_server_that_accepts_and_forgets_connections_does_not_cost_session(
    settings: ZooKeeperSettings, masters: Make, zookeeper: EmbeddedZooKeeper
) -> None:
    with Forgetful(zookeeper.connect_string) as link:
        one = masters(through(link, settings, 30.0))
        one.join()
        granted = one.epoch()
        link.forgets = 2
        link.reset()
        wait_until(lambda: link.forgets == 0)
        wait_until(lambda: one.believes())
        assert one.epoch() == granted
        one.close()


def test_node_lost_during_disconnection_ends_term(
    settings: ZooKeeperSettings, masters: Make, link: NetworkLink
) -> None:
    one = masters(through(link, settings, 30.0))
    one.join()
    first = one.leads()
    link.sever()
    wait_until(lambda: one.is_suspended)
    with onlooker(settings) as kazoo:
        (node,) = tree(kazoo, Paths.from_settings(settings).latch)
        kazoo.delete(node)
    link.heal()
    wait_until(lambda: one.granted not in (None, first))
    assert one.epoch() > first


def test_session_that_outlives_its_lease_is_new_term(
    settings: ZooKeeperSettings, masters: Make, zookeeper: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper stops for longer than a session: it keeps the session, but its master cannot know that."""
    one = masters(lasting(settings, 2.0))
    one.join()
    first = one.leads()
    session = one._session.id
    zookeeper.pause()
    try:
        wait_until(lambda: one.is_suspended)
        assert one.granted == first
        wait_until(lambda: not one.granted)
    finally:
        zookeeper.resume()
    assert one.epoch() > first
    with onlooker(settings) as kazoo:
        wait_until(lambda: len(tree(kazoo, Paths.from_settings(settings).latch)) == 1)
    assert session is not None


def test_masters_that_start_before_zookeeper_wait_for_it(masters: Make, settings: ZooKeeperSettings) -> None:
    with EmbeddedZooKeeper() as zookeeper:
        late = msgspec.structs.replace(settings, quorum=zookeeper.connect_string, connection_timeout_s=0.3)
        zookeeper.kill()
        master = masters(late)
        master.join()
        wait_until(lambda: master._session.complaint)
        assert master.is_suspended
        assert not master.granted
        zookeeper.start()
        assert zookeeper.connect_string == late.quorum
        master.epoch()
        assert not master.is_suspended
        master.close()


def test_session_that_ends_during_election_leaves_no_candidate(
    settings: ZooKeeperSettings, masters: Make, link: NetworkLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, waiting = masters(settings), masters(through(link, settings, 4.0))
    latch = Paths.from_settings(settings).latch
    leader.join()
    leader.leads()
    create = Client.create_async

    def cut_off(self: Client, *args: object, **more: object) -> object:
        """Cuts the link: requests reach ZooKeeper, but no answer returns. The leader may be about to publish itself."""
        if self is waiting._session.client:
            link.cut(requests=False)
        return create(self, *args, **more)

    with onlooker(settings) as kazoo:
        monkeypatch.setattr(Client, "create_async", cut_off)
        waiting.join()
        wait_until(lambda: len(tree(kazoo, latch)) == 2)
        monkeypatch.undo()
        orphan = tree(kazoo, latch)
        wait_until(lambda: len(tree(kazoo, latch)) == 1)
        assert not waiting.granted
        link.heal()
        wait_until(lambda: len(tree(kazoo, latch)) == 2 and tree(kazoo, latch) != orphan)
        leader.close()
        waiting.epoch()
        wait_until(lambda: len(tree(kazoo, latch)) == 1)


def test_node_of_unknown_session_does_not_block_election(
    settings: ZooKeeperSettings, masters: Make, link: NetworkLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo continues in a new session by itself, also during a request that began in the old one."""
    create = Client.create_async
    with onlooker(settings) as kazoo:
        kazoo.ensure_path(Paths.from_settings(settings).latch)
        master = masters(through(link, settings, 3.0))
        # Ephemeral, and gone with the session that it is of.
        sign = f"{settings.cluster_path}/sign"
        wait_until(lambda: master._session.usable)
        master._session.client.create(sign, ephemeral=True)

        def in_another_session(self: Client, *args: object, **more: object) -> object:
            monkeypatch.undo()
            before = self.client_id
            link.sever()
            wait_until(lambda: not self.connected)
            wait_until(lambda: not master._session.held)
            wait_until(lambda: kazoo.exists(sign) is None)
            link.heal()
            wait_until(lambda: self.client_id not in (None, before))
            return create(self, *args, **more)

        monkeypatch.setattr(Client, "create_async", in_another_session)
        master.join()
        epoch = master.epoch()
        (node,) = tree(kazoo, Paths.from_settings(settings).latch)
        assert kazoo.exists(node).czxid == epoch
