"""The checker reports violations of checkpoints, and reports none if they are correct."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from . import check
from .checkpoint_log_builder import (
    JM,
    CheckpointLogBuilder,
    checkpointed_job,
    completed_checkpoint,
    restored_checkpoint,
    uri,
)
from .log_builder import SECOND


def find_violations(builder: CheckpointLogBuilder, *, settled: bool = True) -> list[str]:
    return [str(violation) for violation in check(builder.events, settled=settled)]


def two_checkpoints() -> CheckpointLogBuilder:
    """Returns a log with two checkpoints, of which the first is discarded."""
    builder = checkpointed_job()
    builder.checkpoint(1)
    builder.checkpoint(2)
    builder.discard(1)
    return builder


def test_checker_accepts_correct_checkpoints() -> None:
    assert find_violations(two_checkpoints()) == []


def test_checker_accepts_declined_checkpoint_and_next_one_with_new_id() -> None:
    builder = two_checkpoints()
    builder.trigger(3)
    builder.acknowledge(3, "a0")
    builder.abort(3)
    builder.command_checkpoint("AbortCheckpoint", 3, ["a0", "b0"])
    builder.acknowledge(3, "b0")
    builder.discard(3)
    builder.checkpoint(4)
    assert find_violations(builder) == []


def test_checker_ignores_messages_about_checkpoint_that_is_over() -> None:
    builder = two_checkpoints()
    builder.acknowledge(1, "a0")
    builder.acknowledge(2, "a0", "a0")
    builder.complete(2)
    builder.trigger(3)
    before = len(builder.events) - 1
    builder.acknowledge(3, "a0", "b0")
    builder.complete(3)
    builder.abort(3, at=before)
    assert find_violations(builder) == []


def test_checker_accepts_savepoint_with_answer_to_client() -> None:
    builder = two_checkpoints()
    request = builder.ask("TriggerSavepoint")
    builder.trigger(3, savepoint=True, requests=[request])
    builder.acknowledge(3, "a0", "b0")
    builder.complete(3, savepoint=True)
    builder.answer()
    assert find_violations(builder) == []


def test_checker_goes_by_settings_that_decision_has_read() -> None:
    builder = two_checkpoints()
    builder.configure({"execution.checkpointing.timeout": "0 ms"})
    builder.trigger(3)
    builder.abort(3, "CHECKPOINT_EXPIRED")
    assert find_violations(builder) == []


def test_checker_expects_no_part_of_finished_task() -> None:
    builder = checkpointed_job()
    builder.report("a0", "FINISHED", "te-1")
    builder.trigger(1, ["b0"], finished=["a0"])
    builder.acknowledge(1, "b0")
    builder.complete(1)
    builder.fail("b0")
    builder.run("b1", "w", 1, restore=restored_checkpoint(1))
    assert find_violations(builder) == []


def test_checker_expects_no_part_of_task_that_finishes_before_barrier() -> None:
    builder = checkpointed_job()
    builder.trigger(1)
    builder.acknowledge(1, "b0")
    builder.report("a0", "FINISHED", "te-1")
    builder.complete(1)
    assert find_violations(builder) == []


def test_checker_accepts_task_that_restores_newest_checkpoint() -> None:
    builder = two_checkpoints()
    builder.fail("a0")
    builder.run("a1", "v", 1, restore=restored_checkpoint(2))
    assert find_violations(builder) == []


def test_checker_accepts_task_that_restores_newest_checkpoint_its_job_master_had_read() -> None:
    builder = checkpointed_job()
    builder.checkpoint(1)
    builder.trigger(2)
    builder.acknowledge(2, "a0", "b0")
    builder.fail("a0")
    before = len(builder.events) - 1
    builder.complete(2)
    builder.run("a1", "v", 1, restore=restored_checkpoint(1), at=before)
    assert find_violations(builder) == []


def test_checker_accepts_rollback() -> None:
    builder = two_checkpoints()
    builder.fail("a0", progress_lost=True)
    builder.status("RESTARTING")
    builder.report("b0", "CANCELED", "te-1")
    builder.roll_back(2, 1, 1)
    builder.checkpoint(3, "a1", "b1", generation=1)
    builder.discard(2)
    builder.fail("a1")
    builder.run("a2", "v", 2, generation=1, restore=restored_checkpoint(3, 1))
    assert find_violations(builder) == []


def test_checker_accepts_rollback_to_older_checkpoint_if_newest_is_corrupt() -> None:
    builder = checkpointed_job()
    builder.checkpoint(1)
    builder.checkpoint(2)
    builder.fail("a0", progress_lost=True)
    builder.status("RESTARTING")
    builder.report("b0", "CANCELED", "te-1")
    builder.restored(1, **{uri(2): "it is torn"})
    builder.run("a1", "v", 1, generation=1, restore=restored_checkpoint(1))
    builder.run("b1", "w", 1, generation=1, restore=restored_checkpoint(1))
    assert find_violations(builder) == []


def test_checker_accepts_job_that_starts_from_savepoint() -> None:
    builder = checkpointed_job(savepoint_path=uri(7))
    builder.restored(7, -1)
    for name, vertex_id in (("a0", "v"), ("b0", "w")):
        builder.run(name, vertex_id, 0, restore=restored_checkpoint(7, -1))
    builder.status("RUNNING")
    builder.fail("a0")
    builder.run("a1", "v", 1, restore=restored_checkpoint(7, -1))
    builder.checkpoint(1, "a1", "b0")
    assert find_violations(builder) == []


def all_end(builder: CheckpointLogBuilder) -> None:
    """Ends all tasks for a rollback to a checkpoint."""
    builder.fail("a0", progress_lost=True)
    builder.status("RESTARTING")
    builder.report("b0", "CANCELED", "te-1")


def id_is_used_twice(builder: CheckpointLogBuilder) -> None:
    builder.trigger(2)


def acknowledgement_is_missing(builder: CheckpointLogBuilder) -> None:
    builder.trigger(3)
    builder.acknowledge(3, "a0")
    builder.complete(3)


def other_task_executor_acknowledges(builder: CheckpointLogBuilder) -> None:
    builder.trigger(3)
    builder.acknowledge(3, "a0")
    builder.acknowledge(3, "b0", resource_id="te-9")
    builder.complete(3)


def dead_attempt_acknowledges(builder: CheckpointLogBuilder) -> None:
    builder.trigger(3)
    builder.acknowledge(3, "a0")
    builder.fail("b0")
    builder.acknowledge(3, "b0")
    builder.complete(3)


def attempt_that_does_not_run_is_expected(builder: CheckpointLogBuilder) -> None:
    builder.fail("b0")
    builder.trigger(3)
    builder.abort(3)


def subtask_is_not_expected(builder: CheckpointLogBuilder) -> None:
    builder.trigger(3, ["a0"])
    builder.abort(3)


def running_attempt_counts_as_finished(builder: CheckpointLogBuilder) -> None:
    builder.trigger(3, ["a0"], finished=["b0"])
    builder.abort(3)


def two_are_pending(builder: CheckpointLogBuilder) -> None:
    builder.trigger(3)
    builder.trigger(4)
    builder.abort(3)
    builder.abort(4)


def one_is_never_over(builder: CheckpointLogBuilder) -> None:
    builder.trigger(3)
    builder.now += 700 * SECOND
    builder.lead("task_executor/te-9")


def one_expires_too_early(builder: CheckpointLogBuilder) -> None:
    builder.trigger(3)
    builder.abort(3, "CHECKPOINT_EXPIRED")


def one_expires_by_setting_that_was_removed(builder: CheckpointLogBuilder) -> None:
    builder.configure({"execution.checkpointing.timeout": "0 ms"})
    builder.configure({}, "execution.checkpointing.timeout")
    one_expires_too_early(builder)


def complete_checkpoint_is_aborted(builder: CheckpointLogBuilder) -> None:
    builder.abort(2)


def one_is_written_where_another_was(builder: CheckpointLogBuilder) -> None:
    builder.trigger(3, directory=uri(2))
    builder.abort(3)


def pending_checkpoint_is_confirmed(builder: CheckpointLogBuilder) -> None:
    builder.trigger(3)
    builder.command_checkpoint("ConfirmCheckpoint", 3, ["a0"])
    builder.abort(3)


def complete_checkpoint_gets_abort_command(builder: CheckpointLogBuilder) -> None:
    builder.command_checkpoint("AbortCheckpoint", 2, ["a0"])


def aborted_checkpoint_is_triggered(builder: CheckpointLogBuilder) -> None:
    builder.trigger(3)
    builder.abort(3)
    builder.command_checkpoint("TriggerCheckpoint", 3, ["a0"])


def newest_checkpoint_is_discarded(builder: CheckpointLogBuilder) -> None:
    builder.discard(2)


def savepoint_is_discarded(builder: CheckpointLogBuilder) -> None:
    request = builder.ask()
    builder.trigger(3, savepoint=True, requests=[request])
    builder.acknowledge(3, "a0", "b0")
    builder.complete(3, savepoint=True)
    builder.answer()
    builder.checkpoint(4)
    builder.discard(3)


def one_is_discarded_that_a_task_begins_with(builder: CheckpointLogBuilder) -> None:
    builder.trigger(3)
    builder.acknowledge(3, "a0", "b0")
    builder.fail("a0")
    before = len(builder.events) - 1
    builder.complete(3)
    builder.run("a1", "v", 1, restore=restored_checkpoint(2), at=before, runs=False)
    builder.discard(2)


def request_is_not_answered(builder: CheckpointLogBuilder) -> None:
    builder.ask("StopWithSavepoint")


def request_is_answered_twice(builder: CheckpointLogBuilder) -> None:
    builder.ask()
    builder.answer()
    builder.answer(succeeded=False)


def task_restores_old_checkpoint(builder: CheckpointLogBuilder) -> None:
    builder.fail("a0")
    builder.run("a1", "v", 1, restore=restored_checkpoint(1))


def task_restores_nothing(builder: CheckpointLogBuilder) -> None:
    builder.fail("a0")
    builder.run("a1", "v", 1)


def task_restarts_after_lost_progress(builder: CheckpointLogBuilder) -> None:
    builder.fail("a0", progress_lost=True)
    builder.run("a1", "v", 1, restore=restored_checkpoint(2))


def generations_run_beside_each_other(builder: CheckpointLogBuilder) -> None:
    builder.fail("a0", progress_lost=True)
    builder.run("a1", "v", 1, generation=1, restore=restored_checkpoint(2))


def older_generation_restarts(builder: CheckpointLogBuilder) -> None:
    builder.fail("a0", progress_lost=True)
    builder.status("RESTARTING")
    builder.report("b0", "CANCELED", "te-1")
    builder.roll_back(2, 1, 1)
    builder.fail("a1")
    builder.run("a2", "v", 2, generation=0, restore=restored_checkpoint(2))


def generation_starts_without_restore(builder: CheckpointLogBuilder) -> None:
    builder.fail("a0", progress_lost=True)
    builder.status("RESTARTING")
    builder.report("b0", "CANCELED", "te-1")
    builder.run("a1", "v", 1, generation=1, restore=restored_checkpoint(2))
    builder.run("b1", "w", 1, generation=1, restore=restored_checkpoint(2))


def job_rolls_back_too_far(builder: CheckpointLogBuilder) -> None:
    builder.checkpoint(3)
    all_end(builder)
    builder.restored(2)


def restored_checkpoint_has_finished_task(builder: CheckpointLogBuilder) -> None:
    builder.report("a0", "FINISHED", "te-1")
    builder.trigger(3, ["b0"], finished=["a0"])
    builder.acknowledge(3, "b0")
    builder.complete(3)
    builder.fail("b0", progress_lost=True)
    builder.status("RESTARTING")
    builder.restored(3)


def job_restores_discarded_checkpoint(builder: CheckpointLogBuilder) -> None:
    all_end(builder)
    builder.restored(1, **{uri(2): "torn"})


def job_restores_unknown_checkpoint(builder: CheckpointLogBuilder) -> None:
    all_end(builder)
    builder.restored(9)


def job_starts_from_unrequested_savepoint(builder: CheckpointLogBuilder) -> None:
    all_end(builder)
    builder.restored(9, -1)


def one_is_complete_elsewhere(builder: CheckpointLogBuilder) -> None:
    builder.trigger(3)
    builder.acknowledge(3, "a0", "b0")
    checkpoint = {**completed_checkpoint(3), "uri": uri(4)}
    builder.append(JM, JM, "job_master.CheckpointCompleted", job_id="j", checkpoint=checkpoint)


def one_is_complete_that_never_began(builder: CheckpointLogBuilder) -> None:
    builder.complete(3)


def stopped_job_is_cancelled(builder: CheckpointLogBuilder) -> None:
    builder.trigger(3, savepoint=True, stops=True)
    builder.acknowledge(3, "a0", "b0")
    builder.complete(3, savepoint=True)
    builder.status("CANCELLING")
    builder.report("a0", "CANCELED", "te-1")
    builder.report("b0", "CANCELED", "te-1")
    builder.status("CANCELED")
    end = {"job_id": "j", "status": "CANCELED", "reason": None, "accumulators": {}}
    builder.append(JM, "dispatcher", "dispatcher.JobReachedTerminalState", **end)


BAD: dict[Callable[[CheckpointLogBuilder], None], str] = {
    id_is_used_twice: "ids are used once",
    acknowledgement_is_missing: "has not acknowledged it",
    other_task_executor_acknowledges: "has not acknowledged it",
    dead_attempt_acknowledges: "has not acknowledged it",
    attempt_that_does_not_run_is_expected: "which does not run",
    subtask_is_not_expected: "is of 1 subtasks",
    running_attempt_counts_as_finished: "for finished in checkpoint 3",
    two_are_pending: "while 1 are pending",
    one_is_never_over: "neither complete nor aborted",
    one_expires_too_early: "has expired after 0 us",
    one_expires_by_setting_that_was_removed: "has expired after 0 us",
    complete_checkpoint_is_aborted: "though it was complete",
    one_is_written_where_another_was: "as checkpoint 2 of j was",
    pending_checkpoint_is_confirmed: "is told that checkpoint 3 of j is complete",
    complete_checkpoint_gets_abort_command: "is told that checkpoint 2 of j is aborted",
    aborted_checkpoint_is_triggered: "which is aborted",
    newest_checkpoint_is_discarded: "only 0 newer ones",
    savepoint_is_discarded: "belongs to who asked for it",
    one_is_discarded_that_a_task_begins_with: "is discarded while attempt 1",
    request_is_not_answered: "was answered 0 times",
    request_is_answered_twice: "once more than it asked",
    task_restores_old_checkpoint: "not with {'checkpoint_id': 2",
    task_restores_nothing: "begins with None",
    task_restarts_after_lost_progress: "whose progress was lost",
    generations_run_beside_each_other: "has not ended, but generation 1 begins",
    older_generation_restarts: "after generation 1 has begun",
    generation_starts_without_restore: "no checkpoint was restored",
    job_rolls_back_too_far: "though 3 is newer",
    restored_checkpoint_has_finished_task: "but in it had finished",
    job_restores_discarded_checkpoint: "which is not there",
    job_restores_unknown_checkpoint: "no checkpoint of its own",
    job_starts_from_unrequested_savepoint: "which nobody asked for",
    one_is_complete_elsewhere: "but was triggered to be in",
    one_is_complete_that_never_began: "but was never triggered",
    stopped_job_is_cancelled: "though the savepoint that it was to end with was complete",
}


@pytest.mark.parametrize("spoil", BAD, ids=lambda item: item.__name__)
def test_checker_reports_checkpoint_violation(spoil: Callable[[CheckpointLogBuilder], None]) -> None:
    builder = two_checkpoints()
    spoil(builder)
    assert any(BAD[spoil] in violation for violation in find_violations(builder)), find_violations(builder)
