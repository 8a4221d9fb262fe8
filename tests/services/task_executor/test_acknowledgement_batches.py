"""Laws of the batches in which a TaskExecutor acknowledges checkpoints."""

from __future__ import annotations

from collections import Counter
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from tailrace.schemas.types import CheckpointMetrics, OperatorState, SubtaskAcknowledgement, SubtaskState
from tailrace.services.task_executor.acknowledgement_batches import (
    LINGER_US,
    MAX_BATCH_BYTES,
    AcknowledgementBatches,
    Batch,
)

JOBS = {"j": ("a", "b", "c"), "k": ("x",), "l": ("y", "z")}
ATTEMPTS = [(job, attempt) for job, attempts in JOBS.items() for attempt in attempts]
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(ATTEMPTS), st.integers(1, 3)),
        st.tuples(st.just("other event"), st.sampled_from(sorted(JOBS)), st.just(0)),
        st.tuples(st.just("time"), st.just(None), st.integers(0, 2 * LINGER_US)),
    ),
    max_size=40,
)


def part(attempt: str, size: int = 0) -> SubtaskAcknowledgement:
    state = SubtaskState(operators={"o" * size: OperatorState()} if size else {})
    return SubtaskAcknowledgement(
        execution_attempt_id=attempt, metrics=CheckpointMetrics(), subtask_state=state
    )


def named(batches: list[Batch]) -> list[tuple[str, int, list[str]]]:
    return [
        (event.job_id, event.checkpoint_id, [item.execution_attempt_id for item in event.acknowledgements])
        for event, _ in batches
    ]


@given(actions=ACTIONS)
def test_batches_send_each_acknowledgement_once_and_not_late(actions: list[tuple[str, object, int]]) -> None:
    batches, now, sent = AcknowledgementBatches(), 0, Counter[tuple[str, int, str]]()
    added, waiting = Counter[tuple[str, int, str]](), dict[tuple[str, int, str], int]()

    def send(ready: list[Batch]) -> None:
        for job_id, number, attempts in named(ready):
            for attempt in attempts:
                sent[job_id, number, attempt] += 1
                waiting.pop((job_id, number, attempt), None)

    for action, what, number in actions:
        if action == "add" and isinstance(what, tuple):
            job_id, attempt = what
            added[job_id, number, attempt] += 1
            waiting.setdefault((job_id, number, attempt), now)
            send(
                batches.add(
                    job_id,
                    number,
                    part(attempt),
                    running=partial(JOBS.__getitem__, job_id),
                    cause=number,
                    now_us=now,
                )
            )
            for other in {number for job, number, _ in waiting if job == job_id}:
                assert {a for job, n, a in waiting if (job, n) == (job_id, other)} < set(JOBS[job_id])
        elif action == "other event":
            send(batches.take_job(str(what)))
            assert not any(job == what for job, _, _ in waiting)
        else:
            now += number
            send(batches.take_due(now))
            assert all(since > now - LINGER_US for since in waiting.values())
        assert (batches.due_us() is None) is (not waiting)
    send(list(batches.take_all()))
    assert sent == added


def test_batch_of_all_tasks_of_job_is_one_event_with_cause_of_first() -> None:
    batches = AcknowledgementBatches()
    ready = [
        batches.add("j", 7, part(attempt), running=lambda: JOBS["j"], cause=cause, now_us=0)
        for cause, attempt in enumerate("abc")
    ]
    assert ready[:2] == [[], []]
    ((event, cause),) = ready[2]
    assert cause == 0
    assert named([(event, cause)]) == [("j", 7, ["a", "b", "c"])]


def test_batch_has_bounded_size() -> None:
    batches = AcknowledgementBatches()
    running = [f"{number}" for number in range(5)]
    ready = [
        batch
        for attempt in running
        for batch in batches.add(
            "j", 1, part(attempt, MAX_BATCH_BYTES // 2 - 1_000), running=lambda: running, cause=0, now_us=0
        )
    ]
    assert named(ready) == [("j", 1, ["0", "1"]), ("j", 1, ["2", "3"])]
    assert named(list(batches.take_all())) == [("j", 1, ["4"])]
