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
from tailrace.services.dispatcher.submissions_topic import AdmittedPositions, SubmissionsTopic, detect_change

ROLE = Dispatcher()


def topic(topic_id: str | None, *offsets: tuple[int, int]) -> SubmissionsTopic:
    return SubmissionsTopic(topic_id, offsets)


@pytest.mark.parametrize(
    ("admitted", "found", "positions"),
    [
        (AdmittedPositions("a", {0: 3}), topic("a", (0, 3)), None),
        (AdmittedPositions("a", {0: 3}), topic("a", (0, 9), (0, 2)), None),
        (AdmittedPositions("a", {}), topic("a", (0, 9)), None),
        (AdmittedPositions("a", {0: 3}), topic("b", (0, 9)), ()),
        (AdmittedPositions("a", {0: 3}), topic("a", (0, 1)), (1,)),
        (AdmittedPositions("a", {0: 3, 1: 4}), topic("a", (0, 3)), (3,)),
        (AdmittedPositions(None, {}), topic("a", (0, 9), (2, 4)), (9, 4)),
        (AdmittedPositions(None, {}), topic("a", (0, 0)), (0,)),
        (AdmittedPositions(None, {0: 3}), topic("a", (0, 9)), (3,)),
        (AdmittedPositions(None, {0: 3}), topic("a", (0, 1)), ()),
        (AdmittedPositions(None, {}), topic(None, (0, 9)), None),
        (AdmittedPositions(None, {0: 3}), topic(None, (0, 1)), None),
    ],
)
def test_changed_topic_is_detected_with_new_positions(
    admitted: AdmittedPositions, found: SubmissionsTopic, positions: tuple[int, ...] | None
) -> None:
    changed = detect_change("c.submissions", admitted, found)
    assert (changed and changed.positions) == positions
    if changed is not None:
        assert changed.topic_id == found.topic_id
        assert "\n" not in changed.reason


class Cluster:
    """A topic of submissions, a log, and a reader that starts again when either of them changes."""

    def __init__(self) -> None:
        self.generation = 0
        self.partitions: list[list[int]] = [[]]
        self.waiting: set[int] = set()
        """Submissions that are to be admitted."""
        self.admitted: list[int] = []
        self.submitted = 0
        self.begin_log()

    def begin_log(self) -> None:
        """Creates the log as `create_cluster_topics` does: it records where submissions begin."""
        self.state = ROLE.initial("dispatcher")
        self.offset = -1
        ends = tuple(len(partition) for partition in self.partitions)
        self.send(
            dispatcher.SubmissionsTopicChanged(
                topic_id=str(self.generation), positions=ends, reason="created"
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

    def submit(self, partition: int) -> None:
        self.partitions[partition % len(self.partitions)].append(self.submitted)
        self.waiting.add(self.submitted)
        self.submitted += 1

    def create_again(self) -> None:
        self.generation += 1
        for partition in self.partitions:
            self.waiting.difference_update(partition)
        self.partitions = [[]]

    def lose_the_last(self) -> None:
        for partition in self.partitions:
            if partition:
                self.waiting.discard(partition.pop())

    def read(self, admits: int) -> None:
        """Runs a leader that admits at most so many submissions, or reads again the ones that it read last."""
        result = SubmissionsTopic(
            str(self.generation), [(0, len(partition)) for partition in self.partitions]
        )
        changed = detect_change("c.submissions", self.known, result)
        if changed is not None:
            self.send(changed)
            assert detect_change("c.submissions", self.known, result) is None
        for number, records in enumerate(self.partitions):
            position = self.state.positions.get(number, 0)
            for offset in range(position, min(len(records), position + admits)):
                for _ in range(2):  # two leaders may admit the same one
                    origin = Origin(topic="c.submissions", partition=number, offset=offset)
                    self.send(dispatcher.CancelJob(job_id=str(records[offset])), origin)

    @property
    def known(self) -> AdmittedPositions:
        assert isinstance(self.state, DispatcherState)
        return AdmittedPositions(self.state.submissions_topic_id, self.state.positions)


STEPS = st.one_of(
    st.tuples(st.just("submit"), st.integers(0, 3)),
    st.tuples(st.just("read"), st.integers(0, 5)),
    st.sampled_from([("create_again",), ("lose_the_last",), ("add_partition",), ("begin_log",)]),
)


@given(st.lists(STEPS, max_size=30))
def test_each_submission_of_present_topic_and_log_is_admitted_once(steps: list[tuple[str, int]]) -> None:
    cluster = Cluster()
    for name, *arguments in steps:
        if name == "add_partition":
            cluster.partitions.append([])
            continue
        if name == "lose_the_last":
            # It is noticed by whoever reads before new records are written: later ones look like those.
            cluster.lose_the_last()
            cluster.read(0)
            continue
        getattr(cluster, name)(*arguments)
    cluster.read(1000)
    assert len(cluster.admitted) == len(set(cluster.admitted)), "none is run twice"
    assert cluster.waiting <= set(cluster.admitted), "none is dropped"


def test_log_of_earlier_release_is_continued() -> None:
    state = DispatcherState(positions=Map({0: 3}))
    changed = detect_change("c.submissions", AdmittedPositions(None, state.positions), topic("a", (0, 9)))
    assert changed is not None
    header = Header(event_id="e", time=1, sender="dispatcher", sender_epoch=1, recipient="dispatcher")
    after = ROLE.evolve(state, Record(7, header, changed))
    assert (after.submissions_topic_id, after.positions) == ("a", Map({0: 3}))
