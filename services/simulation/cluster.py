"""A simulated cluster: real roles in a Simulator, with the simulated effects of masters and TaskExecutors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...schemas.event import Record
from ..core.replica import Replica
from ..core.role import JOB_MASTER, TASK_EXECUTOR, Time, address, kind_of
from ..job_master.state import StartedJob
from ..task_executor.instructions import TriggerTasks
from ..task_executor.resources import Task
from .checkpoint_storage import SimulatedStorage
from .latencies import Latencies
from .master_effects import FindRecordedEffect, SimulatedMasterEffects
from .simulated_tasks import SimulatedTasks
from .simulator import Simulator
from .task_behavior import TaskBehavior
from .task_executors import SimulatedTaskExecutors


class SimulatedCluster:
    """Continues from a replica: its leading processes and their tasks continue."""

    def __init__(
        self,
        replica: Replica,
        *,
        cluster: str,
        now: Time,
        behavior: TaskBehavior,
        latencies: Latencies,
        storage: SimulatedStorage | None = None,
        find_recorded: FindRecordedEffect = lambda *_: None,
        on_event: Callable[[Record, Sequence[str]], object] = lambda *_: None,
    ) -> None:
        """`find_recorded`: the effects of masters that are repeated. `on_event`: as of Simulator."""
        self.replica = replica
        self.storage = storage or SimulatedStorage()
        self.simulator = Simulator(replica, cluster=cluster, now=now)
        running = [
            role_address
            for role_address in replica.active_addresses
            if kind_of(role_address) == TASK_EXECUTOR
        ]
        self._adopted = {self.simulator.session(role_address) for role_address in running}
        self.tasks = SimulatedTasks(self.simulator, behavior, self.storage, adopt=self._adopt)
        self.task_executors = SimulatedTaskExecutors(self.simulator, self.tasks, latencies)
        self.masters = SimulatedMasterEffects(
            self.simulator, self.task_executors, latencies, self.storage, find_recorded=find_recorded
        )
        self.simulator.shells = {
            TASK_EXECUTOR: self.tasks,
            **dict.fromkeys(SimulatedMasterEffects.KINDS, self.masters),
        }

        def observe(record: Record, changed: Sequence[str]) -> None:
            on_event(record, changed)
            self.task_executors.on_event(record)

        self.simulator.on_event = observe

    def _adopt(self, role_address: str, task: Task) -> list[TriggerTasks] | None:
        """Returns the barriers in the channels to a task that ran before; None for a task of a new process."""
        if self.simulator.session(role_address) not in self._adopted:
            return None
        master = self.replica.states.get(address(JOB_MASTER, task.job_id))
        pending = master.checkpoints.pending if isinstance(master, StartedJob) else {}
        attempt = task.execution_attempt_id
        return [
            TriggerTasks(
                task.job_id, number, (attempt,), checkpoint.triggered, checkpoint.options, checkpoint.cause
            )
            for number, checkpoint in sorted(pending.items())
            if attempt in checkpoint.awaited and checkpoint.failure is None
        ]
