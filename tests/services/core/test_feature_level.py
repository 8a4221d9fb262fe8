"""A log goes by the rules of its feature level, and is never read by rules that it does not know."""

from __future__ import annotations

import pytest

from tailrace.schemas import client, dispatcher
from tailrace.schemas.client import JobAccepted
from tailrace.schemas.event import EVERYONE, Record
from tailrace.schemas.everyone import FeatureLevelRaised
from tailrace.services.core import leadership
from tailrace.services.core.feature_level import FEATURE_LEVEL, FIRST_LEVEL, UnknownFeatureLevel
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import AnyRole, OutgoingEvent, Time
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.dispatcher.role import RaiseFeatureLevel
from tailrace.services.dispatcher.state import DispatcherState
from tailrace.services.history.replay import DecisionCheck
from tailrace.services.job_master import JobMaster
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.snapshots.snapshot_file import pack, unpack
from tailrace.services.task_executor import TaskExecutor

from ..simulated_cluster.cluster import Cluster

NEXT = FEATURE_LEVEL + 1


class Politer(Dispatcher):
    """As another release might have it: from NEXT on it greets who submits."""

    def __init__(self, level: int) -> None:
        self._level = level

    def decide(self, state: DispatcherState, now: Time) -> list[OutgoingEvent]:
        owed = super().decide(state, now)
        if self._level < NEXT:
            return owed
        return [
            OutgoingEvent(
                each.recipient,
                JobAccepted(job_id=each.body.job_id, name="Dear " + each.body.name),
                each.cause,
            )
            if isinstance(each.body, JobAccepted)
            else each
            for each in owed
        ]


def roles_at(level: int) -> list[AnyRole]:
    return [Politer(level), ResourceManager(), JobMaster(), TaskExecutor()]


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is of a release that knows NEXT."""
    monkeypatch.setattr(leadership, "FEATURE_LEVEL", NEXT)


def cluster_that_is_upgraded() -> Cluster:
    """A job before, and one after."""
    cluster = Cluster()
    cluster.replica = Replica(roles_at, on_illegal=lambda *_: None)
    cluster.start_master()
    cluster.start_task_executor("te-1", slots=2)
    cluster.settle()
    cluster.submit("j1")
    cluster.settle()
    cluster.say("dispatcher", EVERYONE, FeatureLevelRaised(level=NEXT))
    cluster.submit("j2")
    cluster.settle()
    return cluster


def names(log: list[Record]) -> list[str]:
    return [each.body.name for each in log if isinstance(each.body, JobAccepted)]


@pytest.mark.usefixtures("newer")
def test_roles_go_by_a_level_from_its_offset_on() -> None:
    assert names(cluster_that_is_upgraded().log) == ["WindowWordCount", "Dear WindowWordCount"]


@pytest.mark.usefixtures("newer")
def test_a_history_across_levels_is_decided_again_as_it_was() -> None:
    log = cluster_that_is_upgraded().log
    check = DecisionCheck(Replica(roles_at, on_illegal=lambda *_: None))
    assert check.check_all(log) == []
    unaware = DecisionCheck(Replica([Politer(NEXT), *roles_at(NEXT)[1:]], on_illegal=lambda *_: None))
    assert len(unaware.check_all(log)) == 1, "a change without a level makes history wrong"


@pytest.mark.usefixtures("newer")
def test_a_snapshot_holds_the_level() -> None:
    replica = cluster_that_is_upgraded().replica
    _, data = pack(replica, cluster="c", event_id="e", fingerprint="f", time=1)
    again = Replica(roles_at)
    unpack(data, cluster="c", fingerprint="f").restore(again)
    assert again.leadership.feature_level == NEXT
    assert again.role("dispatcher") is not again.role("dispatcher", FIRST_LEVEL)


def test_a_log_that_says_nothing_is_at_the_first_level() -> None:
    cluster = Cluster()
    cluster.start_master()
    assert cluster.replica.leadership.feature_level == FIRST_LEVEL


def test_a_release_does_not_read_on_behind_a_level_that_it_does_not_know() -> None:
    cluster = Cluster()
    cluster.start_master()
    with pytest.raises(
        UnknownFeatureLevel, match=rf"level {NEXT} since offset 2.*levels up to {FEATURE_LEVEL}"
    ):
        cluster.say("dispatcher", EVERYONE, FeatureLevelRaised(level=NEXT))


@pytest.mark.usefixtures("newer")
def test_a_level_is_never_lowered_and_only_the_dispatcher_raises_it() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.say("resource_manager", EVERYONE, FeatureLevelRaised(level=NEXT))
    assert cluster.replica.leadership.feature_level == FIRST_LEVEL
    cluster.say("dispatcher", EVERYONE, FeatureLevelRaised(level=NEXT))
    cluster.say("dispatcher", EVERYONE, FeatureLevelRaised(level=FIRST_LEVEL))
    assert cluster.replica.leadership.feature_level == NEXT


def wanted(cluster: Cluster) -> list[int]:
    state = cluster.replica.states["dispatcher"]
    instructions = cluster.replica.role("dispatcher").instructions(state)
    return [each.level for each in instructions if isinstance(each, RaiseFeatureLevel)]


@pytest.mark.usefixtures("newer")
def test_a_level_that_was_asked_for_is_wanted_until_it_is_there() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.say("client/test", "dispatcher", dispatcher.RaiseFeatureLevel(level=NEXT))
    assert wanted(cluster) == [NEXT]
    cluster.start_master()
    assert wanted(cluster) == [NEXT], "a successor that knows the level finds it"
    cluster.say("dispatcher", EVERYONE, FeatureLevelRaised(level=FIRST_LEVEL))
    assert wanted(cluster) == [NEXT]
    cluster.say("dispatcher", EVERYONE, FeatureLevelRaised(level=NEXT))
    assert wanted(cluster) == []


def test_a_later_request_takes_the_place_of_an_earlier_one_and_a_refusal_ends_it() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.say("client/one", "dispatcher", dispatcher.RaiseFeatureLevel(level=2**31 - 1))
    later = cluster.say("client/two", "dispatcher", dispatcher.RaiseFeatureLevel(level=NEXT + 1))
    assert wanted(cluster) == [NEXT + 1]
    refusal = client.FeatureLevelRejected(level=2**31 - 1, reason="no")
    cluster.say("dispatcher", "client/one", refusal, cause=later - 1)
    assert wanted(cluster) == [NEXT + 1]
    cluster.say("dispatcher", "client/two", refusal, cause=later)
    assert wanted(cluster) == []
