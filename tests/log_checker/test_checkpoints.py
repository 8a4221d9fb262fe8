"""The checker finds what is wrong with checkpoints, and finds nothing where they are right."""

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


def said(talk: CheckpointLogBuilder, *, settled: bool = True) -> list[str]:
    return [str(each) for each in check(talk.events, settled=settled)]


def two_checkpoints() -> CheckpointLogBuilder:
    """The first has been discarded."""
    talk = checkpointed_job()
    talk.checkpoint(1)
    talk.checkpoint(2)
    talk.discard(1)
    return talk


def test_checkpoints_that_are_right_are_right() -> None:
    assert said(two_checkpoints()) == []


def test_one_that_is_declined_is_aborted_and_the_next_has_another_id() -> None:
    talk = two_checkpoints()
    talk.trigger(3)
    talk.acknowledge(3, "a0")
    talk.abort(3)
    talk.command_checkpoint("AbortCheckpoint", 3, ["a0", "b0"])
    talk.acknowledge(3, "b0")
    talk.discard(3)
    talk.checkpoint(4)
    assert said(talk) == []


def test_what_is_said_of_one_that_is_over_changes_nothing() -> None:
    talk = two_checkpoints()
    talk.acknowledge(1, "a0")
    talk.acknowledge(2, "a0", "a0")
    talk.complete(2)
    talk.trigger(3)
    before = len(talk.events) - 1
    talk.acknowledge(3, "a0", "b0")
    talk.complete(3)
    talk.abort(3, at=before)
    assert said(talk) == []


def test_a_savepoint_stays_and_who_asked_is_answered() -> None:
    talk = two_checkpoints()
    asked = talk.ask("TriggerSavepoint")
    talk.trigger(3, savepoint=True, requests=[asked])
    talk.acknowledge(3, "a0", "b0")
    talk.complete(3, savepoint=True)
    talk.answer()
    assert said(talk) == []


def test_a_task_that_has_finished_has_no_part() -> None:
    talk = checkpointed_job()
    talk.report("a0", "FINISHED", "te-1")
    talk.trigger(1, ["b0"], finished=["a0"])
    talk.acknowledge(1, "b0")
    talk.complete(1)
    talk.fail("b0")
    talk.run("b1", "w", 1, restore=restored_checkpoint(1))
    assert said(talk) == []


def test_a_task_that_finishes_before_its_barrier_comes_has_no_part() -> None:
    talk = checkpointed_job()
    talk.trigger(1)
    talk.acknowledge(1, "b0")
    talk.report("a0", "FINISHED", "te-1")
    talk.complete(1)
    assert said(talk) == []


def test_a_task_goes_on_with_the_newest_checkpoint() -> None:
    talk = two_checkpoints()
    talk.fail("a0")
    talk.run("a1", "v", 1, restore=restored_checkpoint(2))
    assert said(talk) == []


def test_a_task_goes_on_with_the_newest_checkpoint_that_its_job_master_had_read_of() -> None:
    talk = checkpointed_job()
    talk.checkpoint(1)
    talk.trigger(2)
    talk.acknowledge(2, "a0", "b0")
    talk.fail("a0")
    before = len(talk.events) - 1
    talk.complete(2)
    talk.run("a1", "v", 1, restore=restored_checkpoint(1), at=before)
    assert said(talk) == []


def test_a_job_is_rolled_back() -> None:
    talk = two_checkpoints()
    talk.fail("a0", progress_lost=True)
    talk.status("RESTARTING")
    talk.report("b0", "CANCELED", "te-1")
    talk.roll_back(2, 1, 1)
    talk.checkpoint(3, "a1", "b1", generation=1)
    talk.discard(2)
    talk.fail("a1")
    talk.run("a2", "v", 2, generation=1, restore=restored_checkpoint(3, 1))
    assert said(talk) == []


def test_a_job_is_rolled_back_to_an_older_one_where_the_newest_is_torn() -> None:
    talk = checkpointed_job()
    talk.checkpoint(1)
    talk.checkpoint(2)
    talk.fail("a0", progress_lost=True)
    talk.status("RESTARTING")
    talk.report("b0", "CANCELED", "te-1")
    talk.restored(1, **{uri(2): "it is torn"})
    talk.run("a1", "v", 1, generation=1, restore=restored_checkpoint(1))
    talk.run("b1", "w", 1, generation=1, restore=restored_checkpoint(1))
    assert said(talk) == []


def test_a_job_begins_with_a_savepoint() -> None:
    talk = checkpointed_job(savepoint_path=uri(7))
    talk.restored(7, -1)
    for name, vertex_id in (("a0", "v"), ("b0", "w")):
        talk.run(name, vertex_id, 0, restore=restored_checkpoint(7, -1))
    talk.status("RUNNING")
    talk.fail("a0")
    talk.run("a1", "v", 1, restore=restored_checkpoint(7, -1))
    talk.checkpoint(1, "a1", "b0")
    assert said(talk) == []


def all_end(talk: CheckpointLogBuilder) -> None:
    """The job goes back to a checkpoint."""
    talk.fail("a0", progress_lost=True)
    talk.status("RESTARTING")
    talk.report("b0", "CANCELED", "te-1")


def an_id_is_used_twice(talk: CheckpointLogBuilder) -> None:
    talk.trigger(2)


def an_acknowledgement_is_missing(talk: CheckpointLogBuilder) -> None:
    talk.trigger(3)
    talk.acknowledge(3, "a0")
    talk.complete(3)


def another_speaks_for_a_task(talk: CheckpointLogBuilder) -> None:
    talk.trigger(3)
    talk.acknowledge(3, "a0")
    talk.acknowledge(3, "b0", resource_id="te-9")
    talk.complete(3)


def a_dead_attempt_acknowledges(talk: CheckpointLogBuilder) -> None:
    talk.trigger(3)
    talk.acknowledge(3, "a0")
    talk.fail("b0")
    talk.acknowledge(3, "b0")
    talk.complete(3)


def an_attempt_is_awaited_that_does_not_run(talk: CheckpointLogBuilder) -> None:
    talk.fail("b0")
    talk.trigger(3)
    talk.abort(3)


def a_subtask_is_left_out(talk: CheckpointLogBuilder) -> None:
    talk.trigger(3, ["a0"])
    talk.abort(3)


def an_attempt_is_taken_for_finished(talk: CheckpointLogBuilder) -> None:
    talk.trigger(3, ["a0"], finished=["b0"])
    talk.abort(3)


def two_are_pending(talk: CheckpointLogBuilder) -> None:
    talk.trigger(3)
    talk.trigger(4)
    talk.abort(3)
    talk.abort(4)


def one_is_never_over(talk: CheckpointLogBuilder) -> None:
    talk.trigger(3)
    talk.now += 700 * SECOND
    talk.lead("task_executor/te-9")


def one_expires_too_early(talk: CheckpointLogBuilder) -> None:
    talk.trigger(3)
    talk.abort(3, "CHECKPOINT_EXPIRED")


def a_complete_one_is_aborted(talk: CheckpointLogBuilder) -> None:
    talk.abort(2)


def one_is_written_where_another_was(talk: CheckpointLogBuilder) -> None:
    talk.trigger(3, directory=uri(2))
    talk.abort(3)


def a_pending_one_is_confirmed(talk: CheckpointLogBuilder) -> None:
    talk.trigger(3)
    talk.command_checkpoint("ConfirmCheckpoint", 3, ["a0"])
    talk.abort(3)


def a_complete_one_is_called_off(talk: CheckpointLogBuilder) -> None:
    talk.command_checkpoint("AbortCheckpoint", 2, ["a0"])


def an_aborted_one_is_triggered(talk: CheckpointLogBuilder) -> None:
    talk.trigger(3)
    talk.abort(3)
    talk.command_checkpoint("TriggerCheckpoint", 3, ["a0"])


def the_newest_is_discarded(talk: CheckpointLogBuilder) -> None:
    talk.discard(2)


def a_savepoint_is_discarded(talk: CheckpointLogBuilder) -> None:
    asked = talk.ask()
    talk.trigger(3, savepoint=True, requests=[asked])
    talk.acknowledge(3, "a0", "b0")
    talk.complete(3, savepoint=True)
    talk.answer()
    talk.checkpoint(4)
    talk.discard(3)


def one_is_discarded_that_a_task_begins_with(talk: CheckpointLogBuilder) -> None:
    talk.trigger(3)
    talk.acknowledge(3, "a0", "b0")
    talk.fail("a0")
    before = len(talk.events) - 1
    talk.complete(3)
    talk.run("a1", "v", 1, restore=restored_checkpoint(2), at=before, runs=False)
    talk.discard(2)


def a_request_is_not_answered(talk: CheckpointLogBuilder) -> None:
    talk.ask("StopWithSavepoint")


def a_request_is_answered_twice(talk: CheckpointLogBuilder) -> None:
    talk.ask()
    talk.answer()
    talk.answer(succeeded=False)


def a_task_goes_on_with_an_old_checkpoint(talk: CheckpointLogBuilder) -> None:
    talk.fail("a0")
    talk.run("a1", "v", 1, restore=restored_checkpoint(1))


def a_task_goes_on_with_nothing(talk: CheckpointLogBuilder) -> None:
    talk.fail("a0")
    talk.run("a1", "v", 1)


def a_task_goes_on_though_its_progress_is_lost(talk: CheckpointLogBuilder) -> None:
    talk.fail("a0", progress_lost=True)
    talk.run("a1", "v", 1, restore=restored_checkpoint(2))


def generations_run_beside_each_other(talk: CheckpointLogBuilder) -> None:
    talk.fail("a0", progress_lost=True)
    talk.run("a1", "v", 1, generation=1, restore=restored_checkpoint(2))


def an_older_generation_begins_again(talk: CheckpointLogBuilder) -> None:
    talk.fail("a0", progress_lost=True)
    talk.status("RESTARTING")
    talk.report("b0", "CANCELED", "te-1")
    talk.roll_back(2, 1, 1)
    talk.fail("a1")
    talk.run("a2", "v", 2, generation=0, restore=restored_checkpoint(2))


def a_generation_begins_with_nothing_restored(talk: CheckpointLogBuilder) -> None:
    talk.fail("a0", progress_lost=True)
    talk.status("RESTARTING")
    talk.report("b0", "CANCELED", "te-1")
    talk.run("a1", "v", 1, generation=1, restore=restored_checkpoint(2))
    talk.run("b1", "w", 1, generation=1, restore=restored_checkpoint(2))


def a_job_goes_back_further_than_it_must(talk: CheckpointLogBuilder) -> None:
    talk.checkpoint(3)
    all_end(talk)
    talk.restored(2)


def a_job_goes_back_to_what_had_finished(talk: CheckpointLogBuilder) -> None:
    talk.report("a0", "FINISHED", "te-1")
    talk.trigger(3, ["b0"], finished=["a0"])
    talk.acknowledge(3, "b0")
    talk.complete(3)
    talk.fail("b0", progress_lost=True)
    talk.status("RESTARTING")
    talk.restored(3)


def a_job_goes_back_to_what_is_gone(talk: CheckpointLogBuilder) -> None:
    all_end(talk)
    talk.restored(1, **{uri(2): "torn"})


def a_job_goes_back_to_what_never_was(talk: CheckpointLogBuilder) -> None:
    all_end(talk)
    talk.restored(9)


def a_job_begins_with_a_savepoint_that_nobody_named(talk: CheckpointLogBuilder) -> None:
    all_end(talk)
    talk.restored(9, -1)


def one_is_complete_elsewhere(talk: CheckpointLogBuilder) -> None:
    talk.trigger(3)
    talk.acknowledge(3, "a0", "b0")
    checkpoint = {**completed_checkpoint(3), "uri": uri(4)}
    talk.append(JM, JM, "job_master.CheckpointCompleted", job_id="j", checkpoint=checkpoint)


def one_is_complete_that_never_began(talk: CheckpointLogBuilder) -> None:
    talk.complete(3)


def a_job_that_is_stopped_is_cancelled(talk: CheckpointLogBuilder) -> None:
    talk.trigger(3, savepoint=True, stops=True)
    talk.acknowledge(3, "a0", "b0")
    talk.complete(3, savepoint=True)
    talk.status("CANCELLING")
    talk.report("a0", "CANCELED", "te-1")
    talk.report("b0", "CANCELED", "te-1")
    talk.status("CANCELED")
    end = {"job_id": "j", "status": "CANCELED", "reason": None, "accumulators": {}}
    talk.append(JM, "dispatcher", "dispatcher.JobReachedTerminalState", **end)


BAD: dict[Callable[[CheckpointLogBuilder], None], str] = {
    an_id_is_used_twice: "ids are used once",
    an_acknowledgement_is_missing: "has not acknowledged it",
    another_speaks_for_a_task: "has not acknowledged it",
    a_dead_attempt_acknowledges: "has not acknowledged it",
    an_attempt_is_awaited_that_does_not_run: "which does not run",
    a_subtask_is_left_out: "is of 1 subtasks",
    an_attempt_is_taken_for_finished: "for finished in checkpoint 3",
    two_are_pending: "while 1 are pending",
    one_is_never_over: "neither complete nor aborted",
    one_expires_too_early: "has expired after 0 us",
    a_complete_one_is_aborted: "though it was complete",
    one_is_written_where_another_was: "as checkpoint 2 of j was",
    a_pending_one_is_confirmed: "is told that checkpoint 3 of j is complete",
    a_complete_one_is_called_off: "is told that checkpoint 2 of j is aborted",
    an_aborted_one_is_triggered: "which is aborted",
    the_newest_is_discarded: "only 0 newer ones",
    a_savepoint_is_discarded: "belongs to who asked for it",
    one_is_discarded_that_a_task_begins_with: "is discarded while attempt 1",
    a_request_is_not_answered: "was answered 0 times",
    a_request_is_answered_twice: "once more than it asked",
    a_task_goes_on_with_an_old_checkpoint: "not with {'checkpoint_id': 2",
    a_task_goes_on_with_nothing: "begins with None",
    a_task_goes_on_though_its_progress_is_lost: "whose progress was lost",
    generations_run_beside_each_other: "has not ended, but generation 1 begins",
    an_older_generation_begins_again: "after generation 1 has begun",
    a_generation_begins_with_nothing_restored: "no checkpoint was restored",
    a_job_goes_back_further_than_it_must: "though 3 is newer",
    a_job_goes_back_to_what_had_finished: "but in it had finished",
    a_job_goes_back_to_what_is_gone: "which is not there",
    a_job_goes_back_to_what_never_was: "no checkpoint of its own",
    a_job_begins_with_a_savepoint_that_nobody_named: "which nobody asked for",
    one_is_complete_elsewhere: "but was triggered to be in",
    one_is_complete_that_never_began: "but was never triggered",
    a_job_that_is_stopped_is_cancelled: "though the savepoint that it was to end with was complete",
}


@pytest.mark.parametrize("spoil", BAD, ids=lambda each: each.__name__)
def test_what_is_wrong_is_found(spoil: Callable[[CheckpointLogBuilder], None]) -> None:
    talk = two_checkpoints()
    spoil(talk)
    assert any(BAD[spoil] in each for each in said(talk)), said(talk)
