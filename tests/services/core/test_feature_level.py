"""A log is read by the rules of its feature level, and never by a release that does not know that level."""

from __future__ import annotations

import pytest

from tailrace.schemas import client, dispatcher
from tailrace.schemas.client import JobAccepted
from tailrace.schemas.event import EVERYONE, Record
from tailrace.schemas.everyone import FeatureLevelRaised
from tailrace.services.core import leadership
from tailrace.services.core.feature_level import FEATURE_LEVEL, FIRST_LEVEL, UnknownFeatureLevel
from tailrace.services.core.replica import Replica
from tailrace.services.dispatcher.role import RaiseFeatureLevel
from tailrace.services.history.replay import DecisionCheck
from tailrace.services.snapshots.snapshot_file import pack, unpack

from ..next_level import NEXT, Politer, roles_at
from ..simulated_cluster.cluster import Cluster, start_cluster


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this process one of a release that knows NEXT."""
    monkeypatch.setattr(leadership, "FEATURE_LEVEL", NEXT)


def cluster_that_is_upgraded() -> Cluster:
    """Returns a cluster that is upgraded between two jobs."""
    cluster = start_cluster("te-1", slots=2, replica=Replica(roles_at, on_illegal=lambda *_: None))
    cluster.submit("j1")
    cluster.settle()
    cluster.send("dispatcher", EVERYONE, FeatureLevelRaised(level=NEXT))
    cluster.submit("j2")
    cluster.settle()
    return cluster


def names(log: list[Record]) -> list[str]:
    return [record.body.name for record in log if isinstance(record.body, JobAccepted)]


@pytest.mark.usefixtures("newer")
def test_roles_apply_level_from_its_offset_on() -> None:
    assert names(cluster_that_is_upgraded().log) == ["WindowWordCount", "Dear WindowWordCount"]


@pytest.mark.usefixtures("newer")
def test_decisions_across_levels_are_recomputed() -> None:
    log = cluster_that_is_upgraded().log
    check = DecisionCheck(Replica(roles_at, on_illegal=lambda *_: None))
    assert check.check_all(log) == []
    unaware = DecisionCheck(Replica([Politer(NEXT), *roles_at(NEXT)[1:]], on_illegal=lambda *_: None))
    assert len(unaware.check_all(log)) == 1, "a change without a level makes history wrong"


@pytest.mark.usefixtures("newer")
def test_snapshot_contains_level() -> None:
    replica = cluster_that_is_upgraded().replica
    _, data = pack(replica, cluster="c", event_id="e", fingerprint="f", time=1)
    again = Replica(roles_at)
    unpack(data, cluster="c", fingerprint="f").restore(again)
    assert again.leadership.feature_level == NEXT
    assert again.role("dispatcher") is not again.role("dispatcher", FIRST_LEVEL)


def test_log_without_level_has_first_level() -> None:
    cluster = Cluster()
    cluster.start_master()
    assert cluster.replica.leadership.feature_level == FIRST_LEVEL


def test_release_stops_reading_at_unknown_level() -> None:
    cluster = Cluster()
    cluster.start_master()
    with pytest.raises(
        UnknownFeatureLevel, match=rf"level {NEXT} since offset 2.*levels up to {FEATURE_LEVEL}"
    ):
        cluster.send("dispatcher", EVERYONE, FeatureLevelRaised(level=NEXT))


@pytest.mark.usefixtures("newer")
def test_level_never_falls_and_only_dispatcher_raises_it() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.send("resource_manager", EVERYONE, FeatureLevelRaised(level=NEXT))
    assert cluster.replica.leadership.feature_level == FIRST_LEVEL
    cluster.send("dispatcher", EVERYONE, FeatureLevelRaised(level=NEXT))
    cluster.send("dispatcher", EVERYONE, FeatureLevelRaised(level=FIRST_LEVEL))
    assert cluster.replica.leadership.feature_level == NEXT


def wanted(cluster: Cluster) -> list[int]:
    state = cluster.replica.states["dispatcher"]
    instructions = cluster.replica.role("dispatcher").instructions(state)
    return [instruction.level for instruction in instructions if isinstance(instruction, RaiseFeatureLevel)]


@pytest.mark.usefixtures("newer")
def test_requested_level_is_pending_until_reached() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.send("client/test", "dispatcher", dispatcher.RaiseFeatureLevel(level=NEXT))
    assert wanted(cluster) == [NEXT]
    cluster.start_master()
    assert wanted(cluster) == [NEXT], "a successor that knows the level finds it"
    cluster.send("dispatcher", EVERYONE, FeatureLevelRaised(level=FIRST_LEVEL))
    assert wanted(cluster) == [NEXT]
    cluster.send("dispatcher", EVERYONE, FeatureLevelRaised(level=NEXT))
    assert wanted(cluster) == []


def test_later_request_replaces_earlier_one_and_rejection_ends_it() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.send("client/one", "dispatcher", dispatcher.RaiseFeatureLevel(level=2**31 - 1))
    later = cluster.send("client/two", "dispatcher", dispatcher.RaiseFeatureLevel(level=NEXT + 1))
    assert wanted(cluster) == [NEXT + 1]
    refusal = client.FeatureLevelRejected(level=2**31 - 1, reason="no")
    cluster.send("dispatcher", "client/one", refusal, cause=later - 1)
    assert wanted(cluster) == [NEXT + 1]
    cluster.send("dispatcher", "client/two", refusal, cause=later)
    assert wanted(cluster) == []
