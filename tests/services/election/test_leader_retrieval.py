"""LeaderRetriever reports the leader and each change; its last value survives a short outage."""

from __future__ import annotations

import queue
from collections.abc import Callable

import msgspec
import pytest
from polling import TIMEOUT_S, wait_until

from tailrace.infra.zookeeper import EmbeddedZooKeeper
from tailrace.services.election.leader_information import LeaderInformation
from tailrace.services.election.leader_retrieval import LeaderRetriever, NoLeader
from tailrace.services.election.paths import Paths
from tailrace.services.election.settings import ZooKeeperSettings

from ...fault_injection.network_link import NetworkLink
from .masters import ROLE, Master, onlooker

pytestmark = pytest.mark.integration

Make = Callable[[ZooKeeperSettings], Master]


def test_each_leader_is_reported_in_order(settings: ZooKeeperSettings, masters: Make) -> None:
    leaders: queue.SimpleQueue[LeaderInformation | None] = queue.SimpleQueue()
    one, other = masters(settings), masters(settings)
    with LeaderRetriever(settings, ROLE, leaders.put) as retriever:
        one.join()
        epoch = one.leads()
        first = leaders.get(timeout=TIMEOUT_S)
        assert first == LeaderInformation("host:1", "session of host:1", epoch, {"blob": "h:1"})
        assert retriever.wait(TIMEOUT_S) == first
        one.close()
        assert leaders.get(timeout=TIMEOUT_S) is None
        other.join()
        epoch = other.leads()
        second = leaders.get(timeout=TIMEOUT_S)
        assert second is not None
        assert (second.address, second.epoch) == ("host:2", epoch)


def test_last_leader_is_kept_in_short_outage_and_change_is_reported_afterwards(
    settings: ZooKeeperSettings, masters: Make, zookeeper: EmbeddedZooKeeper
) -> None:
    leaders: queue.SimpleQueue[LeaderInformation | None] = queue.SimpleQueue()
    one, other = masters(settings), masters(settings)
    one.join()
    one.leads()
    with NetworkLink(zookeeper.connect_string) as link:
        beyond = msgspec.structs.replace(settings, quorum=link.address, session_timeout_s=1.0)
        with LeaderRetriever(beyond, ROLE, leaders.put) as retriever:
            first = retriever.wait(TIMEOUT_S)
            assert leaders.get(timeout=TIMEOUT_S) == first
            link.sever()
            wait_until(lambda: not retriever._session.usable)
            assert retriever.leader == first
            one.close()
            other.join()
            other.leads()
            with onlooker(settings) as kazoo:
                wait_until(lambda: kazoo.exists(Paths.from_settings(settings).leader(ROLE)))
            assert retriever.leader == first
            link.heal()
            second = leaders.get(timeout=TIMEOUT_S)
            assert second is not None
            assert second.address == "host:2"


def test_error_without_leader_says_what_to_check(settings: ZooKeeperSettings) -> None:
    with LeaderRetriever(settings, ROLE) as retriever:
        wait_until(lambda: retriever._session.usable)
        with pytest.raises(NoLeader, match=r"no leader is published in .*dispatcher_lock: is a jobmanager"):
            retriever.wait(0.05)


def test_error_names_zookeeper_that_does_not_answer() -> None:
    with NetworkLink("127.0.0.1:1") as link:
        link.sever()
        settings = ZooKeeperSettings(
            quorum=link.address, cluster_path="/tailrace/c", connection_timeout_s=0.2
        )
        with LeaderRetriever(settings, ROLE) as retriever, pytest.raises(NoLeader, match="cannot be reached"):
            retriever.wait(0.2)
