"""The embedded ZooKeeper is a real one: it keeps its data, alone or as an ensemble, and its error says why it cannot
start."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from kazoo.client import KazooClient, KazooState
from polling import TIMEOUT_S, wait_until

from tailrace.infra.ports import ReservedPort
from tailrace.infra.zookeeper import EmbeddedZooKeeper, ZooKeeperUnavailable
from tailrace.infra.zookeeper_ensemble import ZooKeeperEnsemble
from tailrace.services.election.client import Client
from tailrace.services.election.settings import ZooKeeperSettings

from ..fault_injection.network_link import NetworkLink

pytestmark = pytest.mark.integration

SESSION_S = 60.0
"""No session is to run out while a server starts again on a busy machine."""


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    running = EmbeddedZooKeeper(tmp_path / "zookeeper").start()
    yield running
    running.kill()


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedZooKeeper]:
    """Yields one server for tests that leave it unchanged; each test has its own nodes."""
    with EmbeddedZooKeeper() as running:
        yield running


@pytest.fixture(scope="module")
def ensemble() -> Iterator[ZooKeeperEnsemble]:
    """Yields three servers; a test that stops some starts them again."""
    with ZooKeeperEnsemble(3) as running:
        yield running


@contextlib.contextmanager
def client(connect_string: str, session_s: float = SESSION_S) -> Iterator[Client]:
    """Returns a client as masters have it. A server that starts may forget a connection; kazoo's own client waits
    for it until the session expires."""
    settings = ZooKeeperSettings(
        quorum=connect_string, cluster_path="/", session_timeout_s=session_s, connection_timeout_s=2.0
    )
    kazoo = Client(settings, "test")
    kazoo.start(timeout=TIMEOUT_S)
    try:
        yield kazoo
    finally:
        kazoo.discard()


def listening(pid: int) -> set[str]:
    """Returns the addresses on which a process listens. A JVM's for 127.0.0.1 may be an IPv6 one with the mapped
    address."""
    open_ones = psutil.Process(pid).net_connections("tcp")
    return {c.laddr.ip.removeprefix("::ffff:") for c in open_ones if c.status == psutil.CONN_LISTEN}


def test_zookeeper_listens_on_loopback_only(shared: EmbeddedZooKeeper, ensemble: ZooKeeperEnsemble) -> None:
    for keeper in (shared, *ensemble.servers):
        assert listening(keeper.pid) == {"127.0.0.1"}


def test_optional_four_letter_words_are_rejected(
    shared: EmbeddedZooKeeper,
) -> None:
    host, _, port = shared.address.partition(":")
    for word in (b"conf", b"dump", b"wchp", b"envi"):
        with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as connection:
            connection.sendall(word)
            assert b"not in the whitelist" in connection.recv(1000)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_zookeeper_keeps_data_and_address_after_restart(zookeeper: EmbeddedZooKeeper, how: str) -> None:
    address = zookeeper.address
    with client(address) as kazoo:
        kazoo.create("/kept", b"one")
        first = kazoo.exists("/kept").creation_transaction_id
        session = kazoo.client_id
        zookeeper.kill() if how == "kill" else zookeeper.stop()
        assert not zookeeper.is_running()
        assert zookeeper.mode() is None
        zookeeper.start()
        assert zookeeper.address == address

        # The client was told nothing, and its session goes on.
        assert kazoo.retry(kazoo.get, "/kept")[0] == b"one"
        assert kazoo.client_id == session
        kazoo.create("/later")
        assert kazoo.exists("/later").creation_transaction_id > first


def test_ephemeral_node_survives_server_crash_until_session_expires(
    zookeeper: EmbeddedZooKeeper,
) -> None:
    with client(zookeeper.address) as other:
        with client(zookeeper.address) as owner:
            owner.create("/mine", ephemeral=True)
            zookeeper.kill()
            zookeeper.start()
            owner.retry(owner.get, "/mine")
            assert other.retry(other.exists, "/mine")
        wait_until(lambda: other.exists("/mine") is None)


def test_restart_takes_another_port_if_old_port_is_in_use(zookeeper: EmbeddedZooKeeper) -> None:
    with client(zookeeper.address) as kazoo:
        kazoo.create("/kept", b"one")
    address = zookeeper.address
    zookeeper.stop()
    with socket.create_server(("127.0.0.1", int(address.partition(":")[2]))):
        zookeeper.start()
        assert zookeeper.address != address
        with client(zookeeper.address) as kazoo:
            assert kazoo.get("/kept")[0] == b"one"


def test_one_of_several_concurrent_starts_on_same_data_succeeds(tmp_path: Path) -> None:
    candidates = [EmbeddedZooKeeper(tmp_path) for _ in range(3)]

    def started(server: EmbeddedZooKeeper) -> bool:
        try:
            server.start()
        except ZooKeeperUnavailable:
            return False
        return True

    try:
        with ThreadPoolExecutor(3) as threads:
            assert sorted(threads.map(started, candidates)) == [False, False, True]
    finally:
        for candidate in candidates:
            candidate.kill()


def test_stopped_server_continues_after_sigcont(zookeeper: EmbeddedZooKeeper) -> None:
    with client(zookeeper.address, 3.0) as kazoo:
        states: list[str] = []
        kazoo.add_listener(states.append)
        zookeeper.pause()
        assert zookeeper.mode(0.2) is None
        wait_until(lambda: KazooState.SUSPENDED in states)
        zookeeper.resume()
        kazoo.retry(kazoo.create, "/thawed")
        assert zookeeper.mode() == "standalone"


def test_stop_ends_frozen_server(tmp_path: Path) -> None:
    frozen = EmbeddedZooKeeper(tmp_path / "zookeeper").start()
    process = psutil.Process(frozen.pid)
    frozen.pause()
    frozen.stop(timeout_s=TIMEOUT_S)
    assert not process.is_running()


def test_start_error_says_why_server_failed(tmp_path: Path) -> None:
    broken = EmbeddedZooKeeper(tmp_path / "zookeeper", settings={"tickTime": "soon"})
    with pytest.raises(ZooKeeperUnavailable, match=r"tickTime|soon"):
        broken.start()
    assert not broken.is_running()


def test_reserved_port_is_not_given_again_and_can_be_bound() -> None:
    reserved = ReservedPort()
    others = [ReservedPort() for _ in range(50)]
    assert reserved.number not in {other.number for other in others}
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", reserved.number))
        server.listen()
        with pytest.raises(OSError, match="in use"):
            ReservedPort(reserved.number)
    for port in (reserved, *others):
        port.release()


def test_only_client_behind_cut_link_is_suspended_and_keeps_session_if_healed_in_time(
    shared: EmbeddedZooKeeper,
) -> None:
    with NetworkLink(shared.address) as link, client(shared.address) as other:
        cut_off = KazooClient(link.address, timeout=60.0)
        states: list[str] = []
        cut_off.add_listener(states.append)
        cut_off.start(timeout=TIMEOUT_S)
        cut_off.create("/cut-off", ephemeral=True)
        session = cut_off.client_id
        link.sever()
        wait_until(lambda: states[-1:] == [KazooState.SUSPENDED])
        assert other.exists("/cut-off")
        link.heal()
        wait_until(lambda: states[-1:] == [KazooState.CONNECTED])
        assert cut_off.client_id == session
        cut_off.stop()
        cut_off.close()


def test_session_behind_cut_link_expires_on_server(shared: EmbeddedZooKeeper) -> None:
    with NetworkLink(shared.address) as link, client(shared.address) as other:
        cut_off = KazooClient(link.address, timeout=3.0)
        lost: list[str] = []
        cut_off.add_listener(lambda state: lost.append(state) if state == KazooState.LOST else None)
        cut_off.start(timeout=TIMEOUT_S)
        cut_off.create("/runs-out", ephemeral=True)
        link.cut()
        wait_until(lambda: other.exists("/runs-out") is None)
        assert not lost, "nobody can tell it before it is connected again"
        link.heal()
        wait_until(lambda: bool(lost))
        cut_off.stop()
        cut_off.close()


@pytest.mark.parametrize("gone", ["leader", "follower"])
def test_ensemble_serves_clients_with_two_of_three_servers(ensemble: ZooKeeperEnsemble, gone: str) -> None:
    with client(ensemble.connect_string) as kazoo:
        kazoo.create(f"/{gone}", b"before")
        victim = ensemble.leader() if gone == "leader" else ensemble.followers()[0]
        victim.kill()
        assert ensemble.leader() is not victim
        kazoo.retry(kazoo.set, f"/{gone}", b"after")
        victim.start()
        with client(victim.address) as late:
            late.sync(f"/{gone}")
            assert late.get(f"/{gone}")[0] == b"after"


def test_ensemble_without_majority_serves_nobody_until_it_returns(
    ensemble: ZooKeeperEnsemble,
) -> None:
    with client(ensemble.connect_string) as kazoo:
        kazoo.create("/majority", b"before")
    first, second = ensemble.followers()
    keeper = ensemble.leader()
    first.kill()
    second.kill()
    wait_until(lambda: keeper.mode() is None)
    with pytest.raises(ZooKeeperUnavailable, match="leads"):
        ensemble.leader(timeout_s=0.2)
    ensemble.start()
    with client(ensemble.connect_string) as kazoo:
        assert kazoo.get("/majority")[0] == b"before"


def test_ensemble_restarts_with_same_data_and_addresses(tmp_path: Path) -> None:
    with ZooKeeperEnsemble(3, tmp_path) as first, client(first.connect_string) as kazoo:
        kazoo.create("/kept", b"one")
        first.kill()
    with ZooKeeperEnsemble(3, tmp_path) as second:
        assert second.connect_string == first.connect_string
        with client(second.connect_string) as kazoo:
            assert kazoo.get("/kept")[0] == b"one"


def test_temporary_ensemble_removes_its_files() -> None:
    with ZooKeeperEnsemble(2) as several:
        pids, folder = [server.pid for server in several.servers], several.data_dir
        assert folder.is_dir()
    assert not folder.exists()
    assert not any(psutil.pid_exists(pid) for pid in pids)
