"""Checkpoints of a job in one process: a CheckpointCoordinator whose clock is a seed.

It triggers subtasks, expects the acknowledgements of all, writes `_metadata` after the last one, confirms, and aborts
if an expected subtask dies. For each complete checkpoint it records what readers of the sinks' topics have seen of each
subtask before its part (`Taken.before`). The law: this, together with the output of a job that restores the checkpoint,
equals the output of an undisturbed job.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ....schemas.types import (
    CheckpointMetrics,
    CheckpointOptions,
    CompletedCheckpoint,
    JobGraph,
    RestoredCheckpoint,
    SnapshotType,
    SubtaskState,
)
from ...checkpoint.layout import checkpoint_directory, savepoint_directory, shared_directory
from ...checkpoint.metadata import (
    CheckpointMetadata,
    SubtaskSnapshot,
    edges_of,
    outline_of,
    write_metadata,
)
from ...runtime.common.deployment import CheckpointTrigger
from .kafka import Place


@dataclass(frozen=True, slots=True)
class Plan:
    """When checkpoints are taken, and of which kind: probabilities per step of the cluster."""

    rate: float = 0.15
    savepoints: float = 0.3
    """How many of them wait for all barriers."""
    full: float = 0.2
    at_once: int = 2
    """Of how many the parts are awaited at the same time at most."""
    most: int = 50
    stop_at: int | None = None
    """From this step on the job is stopped with a savepoint."""
    drains: bool = False


class Attempt(Protocol):
    """The coordinator's view of a running subtask."""

    def trigger(self, checkpoint: CheckpointTrigger) -> None: ...
    def confirm(self, checkpoint_id: int) -> None: ...
    def abort_checkpoint(self, checkpoint_id: int) -> None: ...


class PartReporter(Protocol):
    """Reports of an attempt about its part in checkpoints."""

    def cut(self, checkpoint_id: int, sent: int) -> None:
        """Records that its part contains everything so far; it has sent so many messages."""

    def acknowledged(self, checkpoint_id: int, state: SubtaskState, metrics: CheckpointMetrics) -> None:
        """Records that the part is in storage."""

    def declined(self, checkpoint_id: int, reason: str) -> None:
        """Records that there is no part."""


@dataclass(frozen=True)
class MemoryCheckpoint:
    """A complete checkpoint."""

    metadata: CheckpointMetadata
    before: Sequence[dict[str, Any]]
    """What the job had printed: each subtask before its part in this, in this generation and those before."""
    stops: bool = False

    @property
    def completed(self) -> CompletedCheckpoint:
        return self.metadata.checkpoint

    def to_restore(self, *, elsewhere: bool = False) -> RestoredCheckpoint:
        """Returns what tasks restore; `elsewhere`: in another job."""
        checkpoint = self.completed
        return RestoredCheckpoint(
            checkpoint_id=checkpoint.checkpoint_id,
            uri=checkpoint.uri,
            generation=-1 if elsewhere else checkpoint.generation,
        )


@dataclass
class _Pending:
    checkpoint: CheckpointTrigger
    awaited: set[Place]
    parts: dict[Place, SubtaskSnapshot]
    cuts: dict[Place, int] = field(default_factory=dict)
    """How many messages each subtask had sent before its part; all that it ever sends where it is not here."""


class MemoryCoordinator:
    """The coordinator of one run of a job.

    Without a plan and a seed it takes only what is triggered. `running` returns the present attempts. `given` returns
    what a subtask has printed, of its first so many messages.
    """

    def __init__(
        self,
        graph: JobGraph,
        job_id: str,
        directory: str,
        plan: Plan | None,
        rng: random.Random | None,
        *,
        running: Callable[[], Mapping[Place, Attempt]],
        given: Callable[[Place, int | None], list[dict[str, Any]]],
        restored: MemoryCheckpoint | None = None,
    ) -> None:
        self.graph = graph
        self._job_id = job_id
        self._directory = directory
        self._plan = plan
        self._rng = rng
        self._running = running
        self._given = given
        self._restored = restored
        self._generation = 0
        self.counter = 0
        """The last id that was given."""
        self._pending: dict[int, _Pending] = {}
        self.taken: list[MemoryCheckpoint] = []
        self.aborted = 0

    @property
    def latest(self) -> MemoryCheckpoint | None:
        """Returns what new attempts restore: the newest checkpoint of this job, but no savepoint, because a user may
        delete it."""
        own = (e for e in reversed(self.taken) if e.completed.snapshot_type is SnapshotType.CHECKPOINT)
        return next(own, None)

    @property
    def stopped(self) -> bool:
        """Returns whether a savepoint that stops the job is complete."""
        return any(checkpoint.stops for checkpoint in self.taken)

    @property
    def under_way(self) -> frozenset[int]:
        """Returns the pending checkpoints."""
        return frozenset(self._pending)

    def reporter_of(self, place: Place) -> PartReporter:
        """Returns the reports of the attempt that runs there from now on; reports of older ones do not count."""
        return _PartReports(self, place, self._generation)

    def step(self, number: int) -> None:
        """Triggers a checkpoint now and then."""
        plan, rng = self._plan, self._rng
        if plan is None or rng is None:
            return
        if plan.stop_at is not None and number >= plan.stop_at:
            if not self.stopped and not self._pending:  # a savepoint is alone
                self.trigger(SnapshotType.SAVEPOINT, stops=True, drains=plan.drains)
        elif len(self._pending) < plan.at_once and self.counter < plan.most and rng.random() < plan.rate:
            aligned = rng.random() < plan.savepoints
            self.trigger(
                SnapshotType.SAVEPOINT if aligned else SnapshotType.CHECKPOINT,
                full=aligned or rng.random() < plan.full,
            )

    def trigger(
        self,
        snapshot_type: SnapshotType,
        *,
        full: bool = True,
        stops: bool = False,
        drains: bool = False,
        directory: str | None = None,
    ) -> int:
        """Fixes the expected subtasks, and triggers the sources. Returns the id. `directory`: where a savepoint is
        created; None: that of the job."""
        number = self.counter = self.counter + 1
        directory = (
            savepoint_directory(directory or self._directory, self._job_id, str(number))
            if snapshot_type is SnapshotType.SAVEPOINT
            else checkpoint_directory(self._directory, number)
        )
        options = CheckpointOptions(
            snapshot_type=snapshot_type,
            directory=directory,
            shared=shared_directory(self._directory),
            full=full,
            stops=stops,
            drains=drains,
        )
        running = self._running()
        finished = {
            place: SubtaskSnapshot(*place, finished=True)
            for place in places_of(self.graph)
            if place not in running
        }
        pending = self._pending[number] = _Pending(
            CheckpointTrigger(checkpoint_id=number, timestamp=0, options=options),
            set(running),
            dict(finished),
        )
        for place, attempt in running.items():
            if all(sender in finished for sender in self._senders(place)):
                attempt.trigger(pending.checkpoint)
        return number

    def cut(self, place: Place, number: int, sent: int) -> None:
        """A subtask cuts its part."""
        pending = self._pending.get(number)
        if pending is not None and place in pending.awaited:
            pending.cuts[place] = sent

    def part(self, number: int, part: SubtaskSnapshot) -> None:
        """A subtask has acknowledged or ended."""
        place = part.vertex_id, part.subtask_index
        pending = self._pending.get(number)
        if pending is None or place not in pending.awaited:
            return
        pending.awaited.discard(place)
        pending.parts[place] = part
        if part.finished:
            pending.cuts.pop(place, None)
        if not pending.awaited:
            self._complete(pending)

    def declined(self, number: int) -> None:
        """A subtask has declined."""
        if number in self._pending:
            self._abort(number)

    def finished(self, place: Place) -> None:
        """A subtask has ended: checkpoints do not wait for it any more."""
        for number in list(self._pending):
            self.part(number, SubtaskSnapshot(*place, finished=True))

    def died(self, place: Place) -> None:
        """An attempt is dead: aborts the checkpoints and stops that wait for it."""
        for number, pending in list(self._pending.items()):
            if place in pending.awaited or pending.checkpoint.options.stops:
                self._abort(number)

    def begin_generation(self, restored: MemoryCheckpoint) -> None:
        """The job rolls back to a checkpoint: pending and newer checkpoints do not count any more."""
        self._generation += 1
        self._pending.clear()
        self._restored = restored
        kept = self.taken.index(restored) + 1 if restored in self.taken else 0
        del self.taken[kept:]

    def is_current(self, generation: int) -> bool:
        """Returns whether reports of attempts of that generation count."""
        return generation == self._generation

    def _complete(self, pending: _Pending) -> None:
        options = pending.checkpoint.options
        number = pending.checkpoint.checkpoint_id
        del self._pending[number]
        completed = CompletedCheckpoint(
            checkpoint_id=number,
            snapshot_type=options.snapshot_type,
            uri=options.directory,
            generation=self._generation,
            size=sum(part.state.size for part in pending.parts.values()),
        )
        places = places_of(self.graph)
        parts = tuple(pending.parts[place] for place in places)
        metadata = CheckpointMetadata(
            self._job_id,
            self.graph.name,
            completed,
            0,
            outline_of(self.graph),
            parts,
            edges_of(self.graph),
        )
        write_metadata(metadata)
        earlier = () if self._restored is None else self._restored.before
        before = [
            *earlier,
            *(row for place in places for row in self._given(place, pending.cuts.get(place))),
        ]
        is_cut = options.stops and options.snapshot_type is SnapshotType.CHECKPOINT
        self.taken.append(MemoryCheckpoint(metadata, before, options.stops and not is_cut))
        if is_cut:
            return  # its attempts stand still until the job is rescaled
        for attempt in list(self._running().values()):
            attempt.confirm(number)

    def _abort(self, number: int) -> None:
        del self._pending[number]
        self.aborted += 1
        for attempt in list(self._running().values()):
            attempt.abort_checkpoint(number)

    def _senders(self, place: Place) -> list[Place]:
        """Returns all subtasks of the vertices before it."""
        before = {e.source_vertex_id for e in self.graph.edges if e.target_vertex_id == place[0]}
        return [place for place in places_of(self.graph) if place[0] in before]


@dataclass(frozen=True)
class _PartReports:
    coordinator: MemoryCoordinator
    place: Place
    generation: int

    def cut(self, checkpoint_id: int, sent: int) -> None:
        if self.coordinator.is_current(self.generation):
            self.coordinator.cut(self.place, checkpoint_id, sent)

    def acknowledged(self, checkpoint_id: int, state: SubtaskState, metrics: CheckpointMetrics) -> None:
        if self.coordinator.is_current(self.generation):
            self.coordinator.part(checkpoint_id, SubtaskSnapshot(*self.place, state=state, metrics=metrics))

    def declined(self, checkpoint_id: int, reason: str) -> None:
        if self.coordinator.is_current(self.generation):
            self.coordinator.declined(checkpoint_id)


def places_of(graph: JobGraph) -> list[Place]:
    """Returns every subtask."""
    return [(vertex.vertex_id, i) for vertex in graph.vertices for i in range(vertex.parallelism)]
