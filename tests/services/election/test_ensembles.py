"""An election lives as long as most of the ensemble does, and begins anew when the whole of it was gone."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from polling import wait_until

from tailrace.infra.zookeeper_ensemble import ZooKeeperEnsemble
from tailrace.services.election.paths import Paths
from tailrace.services.election.settings import ZooKeeperSettings

from .masters import ROLE, Master, onlooker, tree

pytestmark = pytest.mark.integration

Make = Callable[[ZooKeeperSettings], Master]


@pytest.fixture(scope="module")
def ensemble() -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(3) as running:
        yield running


def over(ensemble: ZooKeeperEnsemble, name: str, session_s: float) -> ZooKeeperSettings:
    return ZooKeeperSettings(
        quorum=ensemble.connect_string, cluster_path=f"/tailrace/{name}", session_timeout_s=session_s
    )


def stand(settings: ZooKeeperSettings, masters: Make) -> tuple[Master, Master, int]:
    one, other = masters(settings), masters(settings)
    one.join(ROLE)
    epoch = one.leads()
    other.join(ROLE)
    with onlooker(settings) as kazoo:
        wait_until(lambda: len(tree(kazoo, Paths.from_settings(settings).latch(ROLE))) == 2)
    return one, other, epoch


def peer(master: Master) -> str | None:
    """The server that a master is connected to."""
    connection: socket.socket | None = master._session.client._connection._socket
    with contextlib.suppress(OSError):
        if connection is not None and master._session.client.connected:
            host, port = connection.getpeername()[:2]
            return f"{host}:{port}"
    return None


def has_left(master: Master, server: str | None) -> bool:
    return peer(master) not in (None, server)


def test_a_rolling_restart_changes_nothing(ensemble: ZooKeeperEnsemble, masters: Make) -> None:
    one, other, _ = stand(over(ensemble, "rolling", 60.0), masters)
    granted = one.grants()
    for server in ensemble.servers:
        server.stop()
        wait_until(one.believes)
        server.start()
    wait_until(one.believes)
    assert one.grants() is granted
    assert not other.grants()


def test_a_server_that_stands_still_is_left_for_another_in_time(
    ensemble: ZooKeeperEnsemble, masters: Make
) -> None:
    # The server that stands still may lead the ensemble, and the others then take seconds to elect another.
    one, other, _ = stand(over(ensemble, "still", 20.0), masters)
    granted = one.grants()
    for _ in range(2):
        left = peer(one)
        server = next(server for server in ensemble.servers if server.address == left)
        server.pause()
        try:
            wait_until(partial(has_left, one, left))
            wait_until(one.believes)
        finally:
            server.resume()
        wait_until(lambda: all(server.mode() is not None for server in ensemble.servers))
    assert one.grants() is granted
    assert not other.grants()


def test_after_the_whole_ensemble_was_gone_for_longer_than_a_session_there_is_a_new_term(
    ensemble: ZooKeeperEnsemble, masters: Make
) -> None:
    one, other, epoch = stand(over(ensemble, "gone", 3.0), masters)
    ensemble.kill()
    try:
        wait_until(lambda: one.suspended and other.suspended)
        wait_until(lambda: not one.grants())
        assert not other.grants()
    finally:
        ensemble.start()
    wait_until(lambda: one.believes() or other.believes())
    leader, standby = (one, other) if one.believes() else (other, one)
    assert leader.epoch() > epoch
    assert not standby.grants()
    wait_until(lambda: not standby.suspended)
    leader.close()
    assert standby.epoch() > epoch
