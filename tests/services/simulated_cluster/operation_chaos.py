"""What operators do: quarantines, pauses, restarts, changes of options, resets of offsets; and laws over the log."""

from __future__ import annotations

import random
from collections.abc import Iterable

from tailrace.schemas import dispatcher, job_master, resource_manager, task_executor
from tailrace.schemas.body import Body
from tailrace.schemas.event import Record
from tailrace.schemas.types import JobStatus, PartitionOffset, QuarantineMode
from tailrace.services.core.role import instance_of
from tailrace.services.job_master.state import StartedJob
from tailrace.services.resource_manager.state import host_of

from ..async_simulator import AsyncSimulator

_ACTIONS = {
    "set_quarantine": 4.0,
    "release_all": 1.0,
    "pause": 0.7,
    "resume": 1.0,
    "restart_tasks": 1.5,
    "configure": 1.0,
    "reset_offsets": 1.0,
}
"""Weights of the requests."""
_CHANGES = {
    "execution.checkpointing.interval": ("10 ms", "1 s", "1 h", "off"),
    "execution.checkpointing.timeout": ("1 s", "1 min"),
    "execution.checkpointing.min-pause": ("0 ms", "5 s"),
    "execution.checkpointing.max-concurrent-checkpoints": ("1", "3", "0"),
    "execution.checkpointing.tolerable-failed-checkpoints": ("0", "unlimited"),
    "restart-strategy.type": ("fixed-delay", "failure-rate", "exponential-delay"),
    "restart-strategy.fixed-delay.attempts": ("5", "100"),
    "job.autoscaler.enabled": ("true", "false"),
    "state.backend.type": ("rocksdb",),
}
"""Values of options, also such that are refused."""
_MODES = (QuarantineMode.RELEASED, QuarantineMode.QUARANTINED, QuarantineMode.DRAINING)


def any_quarantine_rule(draw: random.Random) -> dict[str, str]:
    """Returns options of the quarantine by rule, mostly none."""
    if draw.random() < 0.7:
        return {}
    return {
        "taskmanager.quarantine.task-failures": str(draw.randint(1, 3)),
        "taskmanager.quarantine.duration": draw.choice(("5 s", "1 h")),
        "taskmanager.quarantine.max-percent": draw.choice(("34", "60", "100")),
    }


class OperationChaos:
    """Steps of Chaos."""

    world: AsyncSimulator
    job_ids: list[str]

    def operate(self, draw: random.Random) -> None:
        """An operator requests something."""
        (kind,) = draw.choices(list(_ACTIONS), list(_ACTIONS.values()))
        match kind:
            case "set_quarantine":
                resource_id = draw.choice(sorted({"te-1", "te-2", *self.world.workers}))
                host = draw.choice(("host-0", "host-1")) if draw.random() < 0.2 else None
                self._set_quarantine(None if host else resource_id, host, draw.choice(_MODES))
            case "release_all":
                self._release_all()
            case "pause":
                self.world.request(dispatcher.PauseJob(job_id=draw.choice(self.job_ids)))
            case "resume":
                body = dispatcher.ResumeJob(job_id=draw.choice(self.job_ids))
                self.world.request(body, admitted=draw.choice((1, 1, 2)))
            case "configure":
                self._configure(draw)
            case "reset_offsets":
                self._reset_offsets(draw)
            case _:
                self._restart_tasks(draw)

    def _set_quarantine(self, resource_id: str | None, host: str | None, mode: QuarantineMode) -> None:
        self.world.request(
            dispatcher.SetQuarantine(resource_id=resource_id, host=host, mode=mode, reason="a test")
        )

    def _release_all(self) -> None:
        manager = self.world.truth.states.get("resource_manager")
        if manager is None:
            return
        for resource_id in sorted(manager.quarantines.task_executors):
            self._set_quarantine(resource_id, None, QuarantineMode.RELEASED)
        for host in sorted(manager.quarantines.hosts):
            self._set_quarantine(None, host, QuarantineMode.RELEASED)

    def _configure(self, draw: random.Random) -> None:
        """Changes options of a job, or gives them their first values again."""
        keys = draw.sample(sorted(_CHANGES), draw.randint(1, 2))
        changes = {key: draw.choice(_CHANGES[key]) for key in keys}
        job_id = draw.choice(self.job_ids)
        if draw.random() < 0.3:
            self.world.request(dispatcher.ConfigureJob(job_id=job_id, configuration={}, removed=tuple(keys)))
        else:
            self.world.request(dispatcher.ConfigureJob(job_id=job_id, configuration=changes))

    def _reset_offsets(self, draw: random.Random) -> None:
        """Resets positions of a job, of a paused one if there is one."""
        states = {each: self.world.truth.states.get(f"job_master/{each}") for each in self.job_ids}
        at_rest = [
            each
            for each, state in states.items()
            if isinstance(state, StartedJob) and state.status is JobStatus.SUSPENDED
        ]
        job_id = draw.choice(at_rest or self.job_ids)
        state = states[job_id]
        vertices = state.graph.vertices if isinstance(state, StartedJob) else ()
        operators = [vertex.operators[0].operator_id for vertex in vertices] or ["unknown"]
        offsets = tuple(
            PartitionOffset(
                operator_id=draw.choice(operators),
                topic="t",
                partition=draw.randint(0, 2),
                offset=draw.randint(0, 9),
            )
            for _ in range(draw.randint(1, 3))
        )
        self.world.request(dispatcher.ResetOffsets(job_id=job_id, offsets=offsets))

    def _restart_tasks(self, draw: random.Random) -> None:
        """Restarts a subtask, a vertex or a whole job."""
        job_id = draw.choice(self.job_ids)
        state = self.world.truth.states.get(f"job_master/{job_id}")
        vertex_id = subtask_index = None
        if isinstance(state, StartedJob) and draw.random() < 0.8:
            vertex_id, subtask_index = draw.choice(sorted(state.current_attempts))
            subtask_index = draw.choice((None, subtask_index))
        self.world.request(
            dispatcher.RestartTasks(job_id=job_id, vertex_id=vertex_id, subtask_index=subtask_index)
        )


def check_offset_resets(records: Iterable[Record]) -> None:
    """Each task that is submitted by a decision that knows of resets has the last position of each partition of its
    vertex, and no other."""
    resets: dict[str, list[tuple[int, dict[tuple[str, str, int], int]]]] = {}
    sources: dict[tuple[str, str], str] = {}
    for record in records:
        body: Body = record.body
        if isinstance(body, job_master.StartJob):
            for vertex in body.job_graph.vertices:
                sources[body.job_id, vertex.vertex_id] = vertex.operators[0].operator_id
        elif isinstance(body, job_master.ResetOffsets):
            places = {(each.operator_id, each.topic, each.partition): each.offset for each in body.offsets}
            resets.setdefault(body.job_id, []).append((record.offset, places))
        elif isinstance(body, task_executor.SubmitTask):
            expected: dict[tuple[str, str, int], int] = {}
            for begun, places in resets.get(body.job_id, ()):
                if begun <= (record.header.decided_at or 0):
                    expected |= places
            source = sources.get((body.job_id, body.vertex_id))
            submitted = {
                (each.operator_id, each.topic, each.partition): each.offset
                for reset in body.offset_resets
                for each in reset.offsets
            }
            # A rescale may divide vertices; the source stays the first operator of its vertex.
            assert submitted == {place: n for place, n in expected.items() if place[0] == source}, record


def check_quarantines(records: Iterable[Record]) -> None:
    """No slot of a quarantined TaskExecutor is requested by a decision that knows of the quarantine."""
    apart: dict[tuple[str | None, str | None], int] = {}
    hosts: dict[str, tuple[str, int]] = {}
    for record in records:
        body: Body = record.body
        if isinstance(body, resource_manager.RegisterTaskExecutor):
            hosts[body.resource_id] = host_of(body.address), record.offset
        elif isinstance(body, resource_manager.QuarantineChanged):
            apart.pop((body.resource_id, body.host), None)
            if body.mode is not QuarantineMode.RELEASED:
                apart[body.resource_id, body.host] = record.offset
        elif isinstance(body, task_executor.RequestSlot):
            resource_id = instance_of(record.header.recipient)
            host, registered = hosts.get(resource_id, ("", 0))
            decided_at = record.header.decided_at or 0
            for name, since in (((resource_id, None), 0), ((None, host), registered)):
                begun = apart.get(name)
                assert begun is None or decided_at < max(begun, since), f"{name} is quarantined: {record}"
