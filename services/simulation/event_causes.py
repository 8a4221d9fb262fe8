"""The causes of events that simulated TaskExecutors send. They are the same as with real TaskExecutors.

The cause of a task's event is its SubmitTask, or its CancelTask once the TaskExecutor has read that. The cause of a
subtask snapshot is the job's last TriggerCheckpoint that the TaskExecutor received, if it has the same checkpoint id.
For a task that gets only barriers from other TaskExecutors, the cause is its SubmitTask.
"""

from __future__ import annotations


class EventCauses:
    """Of any number of TaskExecutors; offsets in the log."""

    def __init__(self) -> None:
        self._of_attempts: dict[str, int] = {}
        self._told: dict[str, dict[str, tuple[int, int]]] = {}
        """TaskExecutor -> job -> (the checkpoint that it was told last, where)."""

    def on_run_tasks(self, execution_attempt_id: str, cause: int) -> None:
        """It was submitted, or cancelled, at that offset."""
        self._of_attempts[execution_attempt_id] = cause

    def on_instruction(self, role_address: str, job_id: str, checkpoint_id: int, cause: int) -> None:
        """The TaskExecutor was told at that offset to begin a checkpoint of the job."""
        self._told.setdefault(role_address, {})[job_id] = checkpoint_id, cause

    def cause_for(self, execution_attempt_id: str) -> int:
        """Of what it says of itself. Raises KeyError for one that runs by nothing."""
        return self._of_attempts[execution_attempt_id]

    def cause_for_acknowledgement(
        self, role_address: str, job_id: str, execution_attempt_id: str, checkpoint_id: int
    ) -> int:
        """Of what it says of its part in a checkpoint. Raises KeyError as `of`."""
        newest, asked_for = self._told.get(role_address, {}).get(job_id, (None, -1))
        return asked_for if newest == checkpoint_id else self._of_attempts[execution_attempt_id]

    def on_task_ended(self, execution_attempt_id: str) -> None:
        """It says nothing any more."""
        self._of_attempts.pop(execution_attempt_id, None)

    def on_process_ended(self, role_address: str) -> None:
        """The next process under that address was told nothing yet."""
        self._told.pop(role_address, None)
