"""Builds logs of jobs with checkpoints by hand; see `log_builder`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .log_builder import SECOND, LogBuilder, vertex

JM, TE = "job_master/j", "task_executor/te-1"


class CheckpointLogBuilder(LogBuilder):
    """A log with job j, whose checkpoints are in `chk`."""

    def start_checkpointed(self, settings: dict[str, str], savepoint_path: str | None = None) -> None:
        """Starts job j of two vertices with one subtask each."""
        request = self.append("client/me", "dispatcher", "dispatcher.SubmitJob", job_id="j")
        self.append("dispatcher", "client/me", "client.JobAccepted", cause=request, job_id="j")
        vertices = [{**vertex(item), "parallelism": 1} for item in ("v", "w")]
        self.append(
            "dispatcher",
            JM,
            "job_master.StartJob",
            cause=request,
            job_id="j",
            job_graph={"name": "Job", "vertices": vertices, "configuration": {}},
            configuration=settings,
            savepoint_path=savepoint_path,
        )
        self.status("CREATED")
        registers = self.append(JM, "resource_manager", "resource_manager.RegisterJobManager", job_id="j")
        self.append(
            "resource_manager", JM, "job_master.JobManagerRegistrationSuccess", cause=registers, job_id="j"
        )

    def configure(self, configuration: dict[str, str], *removed: str) -> None:
        self.append(
            "dispatcher",
            JM,
            "job_master.JobConfigurationChanged",
            job_id="j",
            configuration=configuration,
            removed=list(removed),
        )

    def trigger(
        self,
        checkpoint_id: int,
        attempts: Sequence[str] = ("a0", "b0"),
        *,
        savepoint: bool = False,
        stops: bool = False,
        requests: Sequence[int] = (),
        finished: Sequence[str] = (),
        directory: str | None = None,
        at: int | None = None,
    ) -> None:
        """Appends CheckpointTriggered, and sends TriggerCheckpoint to the first attempt."""
        kind = "SAVEPOINT" if savepoint else "CHECKPOINT"
        options = {"snapshot_type": kind, "directory": directory or uri(checkpoint_id), "stops": stops}
        reports = list(attempts[:1])
        self.append(
            JM,
            JM,
            "job_master.CheckpointTriggered",
            at=at,
            job_id="j",
            checkpoint_id=checkpoint_id,
            options=options,
            to_trigger=reports,
            to_acknowledge=list(attempts),
            finished=list(finished),
            requests=list(requests),
        )
        self.command_checkpoint("TriggerCheckpoint", checkpoint_id, reports)

    def command_checkpoint(self, name: str, checkpoint_id: int, attempts: Sequence[str]) -> None:
        """Appends TriggerCheckpoint, ConfirmCheckpoint or AbortCheckpoint."""
        self.append(
            JM,
            TE,
            f"task_executor.{name}",
            job_id="j",
            checkpoint_id=checkpoint_id,
            execution_attempt_ids=list(attempts),
        )

    def acknowledge(
        self, checkpoint_id: int, *attempts: str, resource_id: str = "te-1", at: int | None = None
    ) -> None:
        """Appends an AcknowledgeCheckpoint for the attempts."""
        self.append(
            f"task_executor/{resource_id}",
            JM,
            "job_master.AcknowledgeCheckpoint",
            at=at,
            job_id="j",
            checkpoint_id=checkpoint_id,
            acknowledgements=[{"execution_attempt_id": attempt} for attempt in attempts],
        )

    def complete(self, checkpoint_id: int, *, savepoint: bool = False, generation: int = 0) -> None:
        """Appends CheckpointCompleted."""
        self.append(
            JM,
            JM,
            "job_master.CheckpointCompleted",
            job_id="j",
            checkpoint=completed_checkpoint(checkpoint_id, savepoint, generation),
        )

    def abort(self, checkpoint_id: int, failure: str = "CHECKPOINT_DECLINED", at: int | None = None) -> None:
        """Appends CheckpointAborted."""
        self.append(
            JM,
            JM,
            "job_master.CheckpointAborted",
            at=at,
            job_id="j",
            checkpoint_id=checkpoint_id,
            failure=failure,
            reason="so",
        )

    def discard(self, checkpoint_id: int) -> None:
        """Appends CheckpointDiscarded."""
        self.append(JM, JM, "job_master.CheckpointDiscarded", job_id="j", checkpoint_id=checkpoint_id)

    def checkpoint(self, checkpoint_id: int, *attempts: str, generation: int = 0) -> None:
        """Appends the events of a complete checkpoint, a second after the last one."""
        self.now += SECOND
        attempts = attempts or ("a0", "b0")
        self.trigger(checkpoint_id, attempts)
        self.acknowledge(checkpoint_id, *attempts)
        self.complete(checkpoint_id, generation=generation)
        self.command_checkpoint("ConfirmCheckpoint", checkpoint_id, attempts)

    def restored(self, checkpoint_id: int | None, generation: int = 0, **passed_over: str) -> None:
        """Appends CheckpointRestored."""
        reported = None if checkpoint_id is None else restored_checkpoint(checkpoint_id, generation)
        self.append(
            JM,
            JM,
            "job_master.CheckpointRestored",
            job_id="j",
            checkpoint=reported,
            passed_over=passed_over,
        )

    def run(
        self,
        name: str,
        vertex_id: str,
        number: int,
        *,
        generation: int = 0,
        restore: dict[str, Any] | None = None,
        finished: bool = False,
        at: int | None = None,
        runs: bool = True,
    ) -> None:
        """Submits an attempt, which runs by default."""
        request = self.append(
            JM,
            TE,
            "task_executor.SubmitTask",
            at=at,
            job_id="j",
            vertex_id=vertex_id,
            deployment_id=f"deployment {name}",
            subtasks=[
                {
                    "subtask_index": 0,
                    "attempt_number": number,
                    "execution_attempt_id": name,
                    "allocation_id": "A",
                    "finished": finished,
                }
            ],
            generation=generation,
            restore=restore,
        )
        self.append(TE, JM, "job_master.TaskAcknowledged", cause=request, execution_attempt_id=name)
        if runs:
            self.report(name, "RUNNING", "te-1")

    def fail(self, name: str, *, progress_lost: bool = False) -> None:
        """Appends the failure of an attempt."""
        self.append(
            TE,
            JM,
            "job_master.UpdateTaskExecutionState",
            job_id="j",
            execution_attempt_id=name,
            execution_state="FAILED",
            accumulators={},
            progress_lost=progress_lost,
        )

    def ask(self, what: str = "TriggerCheckpoint") -> int:
        """Appends a client's request."""
        return self.append("client/me", "dispatcher", f"dispatcher.{what}", job_id="j")

    def answer(self, *, succeeded: bool = True) -> None:
        """Appends the answer to a request."""
        name = "client.CheckpointSucceeded" if succeeded else "client.CheckpointFailed"
        self.append(JM, "client/me", name, job_id="j")

    def roll_back(self, checkpoint_id: int, generation: int, number: int, taken_in: int = 0) -> None:
        """Ends all tasks, and restarts them from a checkpoint."""
        self.restored(checkpoint_id, taken_in)
        for letter, vertex_id in (("a", "v"), ("b", "w")):
            self.run(
                f"{letter}{number}",
                vertex_id,
                number,
                generation=generation,
                restore=restored_checkpoint(checkpoint_id, taken_in),
            )


def uri(checkpoint_id: int) -> str:
    """Returns the directory of a checkpoint."""
    return f"file:///chk/j/chk-{checkpoint_id}"


def completed_checkpoint(checkpoint_id: int, savepoint: bool = False, generation: int = 0) -> dict[str, Any]:
    """Returns a CompletedCheckpoint."""
    kind = "SAVEPOINT" if savepoint else "CHECKPOINT"
    return {
        "checkpoint_id": checkpoint_id,
        "snapshot_type": kind,
        # As services name what is on this machine.
        "uri": uri(checkpoint_id).removeprefix("file://"),
        "generation": generation,
        "size": 1,
    }


def restored_checkpoint(checkpoint_id: int, generation: int = 0) -> dict[str, Any]:
    """Returns a RestoredCheckpoint."""
    return {"checkpoint_id": checkpoint_id, "uri": uri(checkpoint_id), "generation": generation}


def checkpointed_job(savepoint_path: str | None = None, **settings: str) -> CheckpointLogBuilder:
    """Returns a log in which job j runs a0 and b0 in one slot, with checkpoints."""
    builder = CheckpointLogBuilder()
    builder.cluster("te-1")
    configuration = {"execution.checkpointing.interval": "1 s"}
    configuration |= {
        f"execution.checkpointing.{item.replace('_', '-')}": value for item, value in settings.items()
    }
    builder.start_checkpointed(configuration, savepoint_path)
    builder.slot("A", "te-1")
    if savepoint_path is None:
        builder.task("a0", "A", "te-1")
        builder.task("b0", "A", "te-1", vertex_id="w")
        builder.status("RUNNING")
    return builder
