"""A job with checkpoints under random events: every state is consistent, every request is answered, the job ends,
and a replay gives the same states."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.schemas import client, job_master
from tailrace.schemas.types import ExecutionState, JobStatus, RestoredCheckpoint, SnapshotType
from tailrace.services.job_master.execution_states import DEPLOYED
from tailrace.services.job_master.instructions import (
    CreateChannels,
    DeleteChannels,
    DiscardCheckpoint,
    FindCheckpoint,
    RemoveCheckpoints,
    WriteMetadata,
)
from tailrace.services.job_master.state import Execution, RegistrationState, StartedJob

from .checkpointed import GRAPH, PERIODIC, Checkpointed
from .driver import JOB, bodies

RUNNING, FINISHED, FAILED = ExecutionState.RUNNING, ExecutionState.FINISHED, ExecutionState.FAILED
CONFIGURATION = {
    **PERIODIC,
    "restart-strategy.fixed-delay.attempts": "1000",
    "execution.checkpointing.timeout": "25 s",
}

GOOD = (
    "run",
    "acknowledge",
    "tick",
    "give",
    "perform",
    "say",
    "cancelled",
    "all run",
    "all acknowledge",
    "all perform",
)
BAD = (
    "fail",
    "finish",
    "start again",
    "decline",
    "checkpoint",
    "savepoint",
    "not written",
    "torn",
    "lose progress",
)
RARE = ("lose", "suspend", "resume", "resume", "resume", "later", "stop")
ACTIONS = (*GOOD * 6, *BAD * 2, *RARE)


class Story(Checkpointed):
    """Runs one action after the other; a number selects the task."""

    def __init__(self, retained: int, concurrent: int, savepoint_path: str | None) -> None:
        own = {
            "state.checkpoints.num-retained": str(retained),
            "execution.checkpointing.max-concurrent-checkpoints": str(concurrent),
        }
        super().__init__(GRAPH, {**CONFIGURATION, **own}, savepoint_path)
        self.asked: set[int] = set()
        self.executors = 0

    def act(self, action: str, number: int) -> None:
        """Runs an action, or nothing if it is not possible now."""
        deployed = [execution for execution in self.executions() if execution.state in DEPLOYED]
        task = deployed[number % len(deployed)] if deployed else None
        match action:
            case "all run" | "all acknowledge":
                for _ in range(4):
                    for item in [execution for execution in self.executions() if execution.state in DEPLOYED]:
                        cancels = item.state is ExecutionState.CANCELING and action == "all run"
                        self.of_task("cancelled" if cancels else action.removeprefix("all "), item, number)
                    self.act("say", 5)
            case "all perform":
                for _ in range(4):
                    self.perform(number)
                self.send()
            case "tick":
                self.now += (1 + number % 12) * 1_000_000
            case "say":
                for owed in self.owed()[: 1 + number % 6]:
                    self.receive(JOB, owed.body, recipient=owed.recipient, cause=owed.cause)
            case "later" if task is not None:
                # What was decided before comes into the log behind what has happened since.
                decided = self.owed()[:6]
                self.report(task, FAILED, "broken")
                for owed in decided:
                    self.receive(JOB, owed.body, recipient=owed.recipient, cause=owed.cause)
            case "give" if isinstance(self.state, StartedJob):
                self.registered()
                self.executors += 1
                self.give(f"te-{self.executors}")
            case "perform":
                self.perform(number)
            case "not written" | "torn":
                self.refuse(action)
            case "suspend":
                self.receive("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance"))
            case "resume" if self.state.status is JobStatus.SUSPENDED:
                self.send()
                if not self.state.counts.unfinished:
                    self.receive("dispatcher", job_master.ResumeJob(job_id="j"))
            case "checkpoint" | "savepoint":
                kind = SnapshotType.CHECKPOINT if action == "checkpoint" else SnapshotType.SAVEPOINT
                self.asked.add(self.ask(kind))
            case "stop":
                self.asked.add(self.ask(SnapshotType.SAVEPOINT, stops=True))
            case "lose" if task is not None:
                self.lose(task.resource_id or "")
            case _ if task is not None:
                self.of_task(action, task, number)

    def of_task(self, action: str, task: Execution, number: int) -> None:
        live = {ExecutionState.DEPLOYING, ExecutionState.INITIALIZING, RUNNING}
        match action:
            case "run" if task.state in live:
                self.report(task, RUNNING)
            case "cancelled" if task.state is ExecutionState.CANCELING:
                self.report(task, ExecutionState.CANCELED)
            case "fail" | "lose progress":
                self.report(task, FAILED, "broken", progress_lost=action == "lose progress")
            case "finish" if task.vertex_id == "sink" or number % 3 == 0:
                self.report(task, FINISHED)
            case "start again" if task.state is RUNNING:
                self.report(task, ExecutionState.INITIALIZING)
            case "acknowledge" | "decline":
                for pending in list(self.checkpoints.pending.values()):
                    if action == "acknowledge":
                        self.acknowledge(task, pending.checkpoint_id)
                    elif len(self.checkpoints.pending) == 1:
                        self.decline(task)

    def registered(self) -> None:
        self.send()
        if self.state.registration is not RegistrationState.CLOSED:
            self.receive("resource_manager", job_master.JobManagerRegistrationSuccess(job_id="j"))
        self.send()

    def perform(self, number: int) -> None:
        """Performs an instruction as the shell does."""
        instructions = self.role.instructions(self.state)
        if not instructions:
            return
        instruction = instructions[number % len(instructions)]
        match instruction:
            case CreateChannels():
                self.receive(JOB, job_master.ChannelsCreated(job_id="j"))
            case DeleteChannels():
                self.receive(JOB, job_master.ChannelsDeleted(job_id="j"))
            case WriteMetadata(pending=pending):
                self.write(pending.checkpoint_id)
            case DiscardCheckpoint(checkpoint_id=checkpoint_id, directory=directory, kept=kept):
                assert directory not in kept
                latest = self.checkpoints.latest
                assert latest is None or latest.uri != directory, "tasks begin with it"
                self.receive(JOB, job_master.CheckpointDiscarded(job_id="j", checkpoint_id=checkpoint_id))
            case FindCheckpoint(candidates=candidates):
                assert not self.state.counts.unfinished, "nobody of the old generation runs"
                body = job_master.CheckpointRestored(job_id="j", checkpoint=with_checkpoint_id(candidates[0]))
                self.answer_search(body)
            case RemoveCheckpoints():
                assert not self.checkpoints.pending
                self.receive(JOB, job_master.CheckpointsRemoved(job_id="j"))
            case _:
                raise AssertionError(instruction)

    def refuse(self, how: str) -> None:
        if how == "torn" and self.demands(FindCheckpoint):
            candidates = self.demanded(FindCheckpoint).candidates
            if len(candidates) > 1:
                passed_over = {candidates[0].uri: "torn"}
                body = job_master.CheckpointRestored(
                    job_id="j", checkpoint=with_checkpoint_id(candidates[1]), passed_over=passed_over
                )
                self.answer_search(body)
        if how == "not written" and len(self.demands(WriteMetadata)) == 1:
            self.not_written()

    def end_job(self) -> None:
        """Cancels the job; all others do what they are asked to."""
        self.receive("dispatcher", job_master.CancelJob(job_id="j"))
        for _ in range(60):
            self.send()
            for execution in self.executions():
                if execution.state is ExecutionState.CANCELING:
                    self.report(execution, ExecutionState.CANCELED)
            self.perform(0)
            if self.role.is_quiescent(self.state):
                return
        raise AssertionError(f"it does not end: {self.role.instructions(self.state)}")


def with_checkpoint_id(candidate: RestoredCheckpoint) -> RestoredCheckpoint:
    """Returns the candidate with a checkpoint id, as the shell reads it from the metadata."""
    return (
        candidate
        if candidate.checkpoint_id
        else RestoredCheckpoint(checkpoint_id=7, uri=candidate.uri, generation=-1)
    )


steps = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 11)), max_size=120)


@settings(max_examples=60, deadline=None)
@given(
    retained=st.integers(1, 3),
    concurrent=st.integers(1, 2),
    path=st.none() | st.just("file:///s/savepoint-old"),
    actions=steps,
)
def test_states_are_consistent_requests_answered_and_replay_equal_for_any_events(
    retained: int, concurrent: int, path: str | None, actions: list[tuple[str, int]]
) -> None:
    story = Story(retained, concurrent, path)
    beginning: tuple[tuple[str, int], ...] = (
        ("perform", 0),
        ("perform", 1),
        ("give", 0),
        ("perform", 0),
        ("say", 11),
    )
    start: Callable[[str, int], None] = story.act
    for action, number in (*beginning, *[("run", index) for index in range(4)], *actions):
        start(action, number)
        assert story.owed() == story.owed()
    story.end_job()
    answered = [
        record.header.cause
        for record in story.log
        if isinstance(record.body, client.CheckpointSucceeded | client.CheckpointFailed)
    ]
    assert sorted(number for number in answered if number is not None) == sorted(story.asked)
    state = story.role.initial(JOB)
    for record in story.log:
        state = story.role.evolve(state, record)
    assert state == story.state
    assert not bodies(story.owed(), client.CheckpointFailed)
