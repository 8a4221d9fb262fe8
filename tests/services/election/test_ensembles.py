"""An election continues while a majority of the ensemble is up, and starts again after the whole ensemble was down."""

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

from .masters import Master, onlooker, tree

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
    one.join()
    epoch = one.leads()
    other.join()
    with onlooker(settings) as kazoo:
        wait_until(lambda: len(tree(kazoo, Paths.from_settings(settings).latch)) == 2)
    return one, other, epoch


def peer(master: Master) -> str | None:
    """Returns the server that a master is connected to."""
    connection: socket.socket | None = master._session.client._connection._socket
    with contextlib.suppress(OSError):
        if connection is not None and master._session.client.connected:
            host, port = connection.getpeername()[:2]
            return f"{host}:{port}"
    return None


def has_left(master: Master, server: str | None) -> bool:
    return peer(master) not in (None, server)


def test_rolling_restart_keeps_leader(ensemble: ZooKeeperEnsemble, masters: Make) -> None:
    one, other, _ = stand(over(ensemble, "rolling", 60.0), masters)
    granted = one.granted
    for server in ensemble.servers:
        server.stop()
        wait_until(one.believes)
        server.start()
    wait_until(one.believes)
    assert one.granted == granted
    assert not other.granted


def test_master_leaves_frozen_server_in_time(ensemble: ZooKeeperEnsemble, masters: Make) -> None:
    # The server that stands still may lead the ensemble, and the others then take seconds to elect another.
    one, other, _ = stand(over(ensemble, "still", 20.0), masters)
    granted = one.granted
    for _ in range(2):
        rest = peer(one)
        server = next(server for server in ensemble.servers if server.address == rest)
        server.pause()
        try:
            wait_until(partial(has_left, one, rest))
            wait_until(one.believes)
        finally:
            server.resume()
        wait_until(lambda: all(server.mode() is not None for server in ensemble.servers))
    assert one.granted == granted
    assert not other.granted


def test_outage_of_ensemble_longer_than_session_starts_new_term(
    ensemble: ZooKeeperEnsemble, masters: Make
) -> None:
    one, other, epoch = stand(over(ensemble, "gone", 3.0), masters)
    ensemble.kill()
    try:
        wait_until(lambda: one.is_suspended and other.is_suspended)
        wait_until(lambda: not one.granted)
        assert not other.granted
    finally:
        ensemble.start()
    wait_until(lambda: one.believes() or other.believes())
    leader, standby = (one, other) if one.believes() else (other, one)
    assert leader.epoch() > epoch
    assert not standby.granted
    wait_until(lambda: not standby.is_suspended)
    leader.close()
    assert standby.epoch() > epoch
