"""Each submission is admitted once, whatever happens to its topic and to the log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from tailrace.schemas import dispatcher
from tailrace.schemas.body import Body
from tailrace.schemas.event import Record
from tailrace.schemas.types import Header, Origin
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.dispatcher.state import DispatcherState
from tailrace.services.dispatcher.submissions_topic import (
    AdmittedPositions,
    AdmittedTopics,
    SubmissionsTopic,
    detect_change,
)

ROLE = Dispatcher()


def topic(topic_id: str | None, *offsets: tuple[int, int]) -> SubmissionsTopic:
    return SubmissionsTopic(topic_id, offsets)


@pytest.mark.parametrize(
    ("admitted", "found", "positions"),
    [
        (AdmittedPositions("a", Map({0: 3})), topic("a", (0, 3)), None),
        (AdmittedPositions("a", Map({0: 3})), topic("a", (0, 9), (0, 2)), None),
        (AdmittedPositions("a", Map({})), topic("a", (0, 9)), None),
        (AdmittedPositions("a", Map({0: 3})), topic("b", (0, 9)), ()),
        (AdmittedPositions("a", Map({0: 3})), topic("a", (0, 1)), (1,)),
        (AdmittedPositions("a", Map({0: 3, 1: 4})), topic("a", (0, 3)), (3,)),
        (AdmittedPositions(None, Map({})), topic("a", (0, 9), (2, 4)), (9, 4)),
        (AdmittedPositions(None, Map({})), topic("a", (0, 0)), (0,)),
        (AdmittedPositions(None, Map({0: 3})), topic("a", (0, 9)), (3,)),
        (AdmittedPositions(None, Map({0: 3})), topic("a", (0, 1)), ()),
        (AdmittedPositions(None, Map({})), topic(None, (0, 9)), None),
        (AdmittedPositions(None, Map({0: 3})), topic(None, (0, 1)), None),
    ],
)
def test_changed_topic_is_detected_with_new_positions(
    admitted: AdmittedPositions, found: SubmissionsTopic, positions: tuple[int, ...] | None
) -> None:
    changed = detect_change("c.submissions", Map({"": admitted}), found)
    assert (changed and changed.positions) == positions
    if changed is not None:
        assert changed.topic_id == found.topic_id
        assert "\n" not in changed.reason


class Topic:
    """A topic of submissions."""

    def __init__(self) -> None:
        self.generation = 0
        self.partitions: list[list[int]] = [[]]

    @property
    def found(self) -> SubmissionsTopic:
        return SubmissionsTopic(str(self.generation), [(0, len(partition)) for partition in self.partitions])

    @property
    def records(self) -> set[int]:
        return {record for partition in self.partitions for record in partition}


TENANTS = ("pay", "")


class Cluster:
    """Two topics of submissions, a log, and a reader that starts again when one of them changes."""

    def __init__(self) -> None:
        self.topics = {tenant: Topic() for tenant in TENANTS}
        self.waiting: set[int] = set()
        """Submissions that are to be admitted."""
        self.admitted: list[int] = []
        self.submitted = 0
        self.begin_log()

    def begin_log(self) -> None:
        """Creates the log as `create_cluster_topics` does: it records where submissions begin."""
        self.state = ROLE.initial("dispatcher")
        self.offset = -1
        for tenant, topic in self.topics.items():
            ends = topic.found.ends
            self.send(
                dispatcher.SubmissionsTopicChanged(
                    topic_id=str(topic.generation), positions=ends, reason="created", tenant=tenant
                )
            )
        self.waiting.clear()

    def send(self, body: Body, origin: Origin | None = None) -> None:
        self.offset += 1
        header = Header(
            event_id=str(self.offset),
            time=1,
            sender="client/me" if origin else "dispatcher",
            sender_epoch=0,
            recipient="dispatcher",
            origin=origin,
        )
        before = self.state
        self.state = ROLE.evolve(self.state, Record(self.offset, header, body))
        if isinstance(body, dispatcher.CancelJob) and self.state is not before:
            self.admitted.append(int(body.job_id))

    def submit(self, tenant: str, partition: int) -> None:
        partitions = self.topics[tenant].partitions
        partitions[partition % len(partitions)].append(self.submitted)
        self.waiting.add(self.submitted)
        self.submitted += 1

    def create_again(self, tenant: str) -> None:
        topic = self.topics[tenant]
        topic.generation += 1
        self.waiting -= topic.records
        topic.partitions = [[]]

    def add_partition(self, tenant: str) -> None:
        self.topics[tenant].partitions.append([])

    def lose_the_last(self, tenant: str) -> None:
        for partition in self.topics[tenant].partitions:
            if partition:
                self.waiting.discard(partition.pop())
        # It is noticed by whoever reads before new records are written: later ones look like those.
        self.read(tenant, 0)

    def read(self, tenant: str, admits: int) -> None:
        """Runs a leader that admits at most so many submissions of a topic, or reads again those that it read last."""
        topic = self.topics[tenant]
        changed = detect_change("c.submissions", self.known, topic.found, tenant)
        if changed is not None:
            self.send(changed)
            assert detect_change("c.submissions", self.known, topic.found, tenant) is None
        for number, records in enumerate(topic.partitions):
            position = self.known[tenant].positions.get(number, 0)
            for offset in range(position, min(len(records), position + admits)):
                for _ in range(2):  # two leaders may admit the same one
                    origin = Origin(topic="c.submissions", partition=number, offset=offset, tenant=tenant)
                    self.send(dispatcher.CancelJob(job_id=str(records[offset])), origin)

    @property
    def known(self) -> AdmittedTopics:
        assert isinstance(self.state, DispatcherState)
        return self.state.admitted


OF_TENANT = st.sampled_from(TENANTS)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["submit", "read"]), OF_TENANT, st.integers(0, 5)),
    st.tuples(st.sampled_from(["create_again", "lose_the_last", "add_partition"]), OF_TENANT),
    st.tuples(st.just("begin_log")),
)


@given(st.lists(STEPS, max_size=30))
def test_each_submission_of_present_topics_and_log_is_admitted_once(steps: list[tuple[str, ...]]) -> None:
    cluster = Cluster()
    for name, *arguments in steps:
        getattr(cluster, name)(*arguments)
    for tenant in TENANTS:
        cluster.read(tenant, 1000)
    assert len(cluster.admitted) == len(set(cluster.admitted)), "none is run twice"
    assert cluster.waiting <= set(cluster.admitted), "none is dropped"


def test_log_of_earlier_release_is_continued() -> None:
    state = DispatcherState(admitted=Map({"": AdmittedPositions(None, Map({0: 3}))}))
    changed = detect_change("c.submissions", state.admitted, topic("a", (0, 9)))
    assert changed is not None
    header = Header(event_id="e", time=1, sender="dispatcher", sender_epoch=1, recipient="dispatcher")
    after = ROLE.evolve(state, Record(7, header, changed))
    assert after.admitted == Map({"": AdmittedPositions("a", Map({0: 3}))})


def test_topic_of_new_tenant_is_read_from_its_start_unless_log_is_new() -> None:
    waiting = topic("b", (0, 2))
    read = detect_change("c.submissions.pay", Map({"": AdmittedPositions("a", Map())}), waiting, "pay")
    assert read is not None
    assert (read.tenant, read.positions) == ("pay", ())
    passed_over = detect_change("c.submissions.pay", Map(), waiting, "pay")
    assert passed_over is not None
    assert (passed_over.tenant, passed_over.positions) == ("pay", (2,))
