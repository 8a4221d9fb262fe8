"""Logs of jobs that take checkpoints, made by hand: see `talk`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .log_builder import SECOND, LogBuilder, vertex

JM, TE = "job_master/j", "task_executor/te-1"


class CheckpointLogBuilder(LogBuilder):
    """A log with job j, whose checkpoints lie in `chk`."""

    def start_checkpointed(self, settings: dict[str, str], savepoint_path: str | None = None) -> None:
        """Job j, of two vertices with one subtask each."""
        asked = self.append("client/me", "dispatcher", "dispatcher.SubmitJob", job_id="j")
        self.append("dispatcher", "client/me", "client.JobAccepted", cause=asked, job_id="j")
        vertices = [{**vertex(each), "parallelism": 1} for each in ("v", "w")]
        self.append(
            "dispatcher",
            JM,
            "job_master.StartJob",
            cause=asked,
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
        """CheckpointTriggered, and the first of the attempts is told."""
        kind = "SAVEPOINT" if savepoint else "CHECKPOINT"
        options = {"snapshot_type": kind, "directory": directory or uri(checkpoint_id), "stops": stops}
        told = list(attempts[:1])
        self.append(
            JM,
            JM,
            "job_master.CheckpointTriggered",
            at=at,
            job_id="j",
            checkpoint_id=checkpoint_id,
            options=options,
            to_trigger=told,
            to_acknowledge=list(attempts),
            finished=list(finished),
            requests=list(requests),
        )
        self.command_checkpoint("TriggerCheckpoint", checkpoint_id, told)

    def command_checkpoint(self, name: str, checkpoint_id: int, attempts: Sequence[str]) -> None:
        """TriggerCheckpoint, ConfirmCheckpoint or AbortCheckpoint."""
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
        """AcknowledgeCheckpoint of each."""
        for attempt in attempts:
            self.append(
                f"task_executor/{resource_id}",
                JM,
                "job_master.AcknowledgeCheckpoint",
                at=at,
                job_id="j",
                execution_attempt_id=attempt,
                checkpoint_id=checkpoint_id,
            )

    def complete(self, checkpoint_id: int, *, savepoint: bool = False, generation: int = 0) -> None:
        """The metadata is written."""
        self.append(
            JM,
            JM,
            "job_master.CheckpointCompleted",
            job_id="j",
            checkpoint=completed_checkpoint(checkpoint_id, savepoint, generation),
        )

    def abort(self, checkpoint_id: int, failure: str = "CHECKPOINT_DECLINED", at: int | None = None) -> None:
        """CheckpointAborted."""
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
        """CheckpointDiscarded."""
        self.append(JM, JM, "job_master.CheckpointDiscarded", job_id="j", checkpoint_id=checkpoint_id)

    def checkpoint(self, checkpoint_id: int, *attempts: str, generation: int = 0) -> None:
        """A whole one, a second after the last."""
        self.now += SECOND
        attempts = attempts or ("a0", "b0")
        self.trigger(checkpoint_id, attempts)
        self.acknowledge(checkpoint_id, *attempts)
        self.complete(checkpoint_id, generation=generation)
        self.command_checkpoint("ConfirmCheckpoint", checkpoint_id, attempts)

    def restored(self, checkpoint_id: int | None, generation: int = 0, **passed_over: str) -> None:
        """CheckpointRestored."""
        said = None if checkpoint_id is None else restored_checkpoint(checkpoint_id, generation)
        self.append(
            JM, JM, "job_master.CheckpointRestored", job_id="j", checkpoint=said, passed_over=passed_over
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
        """An attempt is submitted and, mostly, runs."""
        asked = self.append(
            JM,
            TE,
            "task_executor.SubmitTask",
            at=at,
            job_id="j",
            vertex_id=vertex_id,
            subtask_index=0,
            attempt_number=number,
            execution_attempt_id=name,
            allocation_id="A",
            deployment_id=f"deployment {name}",
            deployment_size=1,
            generation=generation,
            restore=restore,
            finished=finished,
        )
        self.append(TE, JM, "job_master.TaskAcknowledged", cause=asked, execution_attempt_id=name)
        if runs:
            self.report(name, "RUNNING", "te-1")

    def fail(self, name: str, *, progress_lost: bool = False) -> None:
        """An attempt fails."""
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
        """A client's request."""
        return self.append("client/me", "dispatcher", f"dispatcher.{what}", job_id="j")

    def answer(self, *, succeeded: bool = True) -> None:
        """The answer to one."""
        name = "client.CheckpointSucceeded" if succeeded else "client.CheckpointFailed"
        self.append(JM, "client/me", name, job_id="j")

    def roll_back(self, checkpoint_id: int, generation: int, number: int, taken_in: int = 0) -> None:
        """All tasks begin again with a checkpoint; before that they have ended."""
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
    """The directory of a checkpoint."""
    return f"file:///chk/j/chk-{checkpoint_id}"


def completed_checkpoint(checkpoint_id: int, savepoint: bool = False, generation: int = 0) -> dict[str, Any]:
    """A CompletedCheckpoint."""
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
    """A RestoredCheckpoint."""
    return {"checkpoint_id": checkpoint_id, "uri": uri(checkpoint_id), "generation": generation}


def checkpointed_job(savepoint_path: str | None = None, **settings: str) -> CheckpointLogBuilder:
    """Job j runs a0 and b0 in one slot, and takes checkpoints."""
    talk = CheckpointLogBuilder()
    talk.cluster("te-1")
    configuration = {"execution.checkpointing.interval": "1 s"}
    configuration |= {
        f"execution.checkpointing.{each.replace('_', '-')}": value for each, value in settings.items()
    }
    talk.start_checkpointed(configuration, savepoint_path)
    talk.slot("A", "te-1")
    if savepoint_path is None:
        talk.task("a0", "A", "te-1")
        talk.task("b0", "A", "te-1", vertex_id="w")
        talk.status("RUNNING")
    return talk
