"""The ResourceManager's shell: lets a driver start and stop workers, and reports lost workers.

The first detector of a worker's end reports it: the driver, or the monitor of registered processes of this machine.
Heartbeats detect all other losses. The loss of one registration is reported once. A new leader's shell compares the
workers that survived with those in the log: unknown ones are stopped, and missing ones are lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from immutables import Map

from ...infra import threads
from ...infra.logging_setup import logger
from ...schemas import resource_manager
from ...schemas.body import Body
from ..core.instruction_tracker import InstructionTracker
from ..core.role import RESOURCE_MANAGER, Emit, Instruction, OutgoingEvent
from .drivers import OnExit, PlatformUnavailable, Report, WorkerDriver
from .instructions import StartWorkerProcess, StopWorkerProcess
from .state import ResourceManagerState, WorkerRegistration
from .worker_pool import WorkerPool, WorkerState

_log = logger(__name__)
_RUNNING = frozenset({WorkerState.STARTED, WorkerState.REGISTERED, WorkerState.RELEASING})
_AT_ONCE = 4
_STARTS_AT_ONCE = 256
"""A start may wait for resources of the platform, and must not delay others."""
_REMEMBERED = 256
"""The number of ended processes whose registration may still arrive."""


class Watch(Protocol):
    """The part of heartbeats.LocalProcessMonitor that the shell uses."""

    def follow(self, workers: Mapping[str, WorkerRegistration]) -> None: ...

    def close(self) -> None: ...


Follow = Callable[[ResourceManagerState], None]
NewDriver = Callable[[OnExit, Report], WorkerDriver]
"""A driver that calls both."""
NewWatch = Callable[[Callable[[str, str, str], None]], Watch]
"""OnEnd -> a watch that calls it."""


class ResourceManagerShell:
    """The shell of one term. It performs StartWorkerProcess and StopWorkerProcess. `follow` receives each state on
    the host's thread. `settled` returns when the shells of this process's earlier terms start and stop nothing any
    more."""

    def __init__(
        self,
        say: Emit,
        new_driver: NewDriver,
        new_watch: NewWatch,
        follow: Follow = lambda _: None,
        settled: Callable[[], None] = lambda: None,
    ) -> None:
        self._say = say
        self._settled = settled
        self._follow = follow
        self._driver = new_driver(self._on_exit, self._report)
        self._watch = new_watch(self._on_process_end)
        self._started = InstructionTracker()
        self._compared: threading.Event | None = None
        self._workers = threads.Pool(_AT_ONCE, "workers")
        self._starts = threads.Pool(_STARTS_AT_ONCE, "worker starts")
        self._lock = threading.Lock()
        self._registered: Map[str, WorkerRegistration] = Map()
        self._addresses: dict[str, str] = {}
        """Where each worker of the driver runs."""
        self._causes: dict[str, int] = {}
        """The offset of the event that required each worker of the driver, or of its state when this term began."""
        self._starting: dict[str, str | None] = {}
        """Workers without a WorkerStarted yet -> why they ended meanwhile, if they did."""
        self._ended_workers: dict[str, tuple[str, str]] = {}
        """Workers that have ended: address and reason."""
        self._stopping: dict[str, int] = {}
        """Workers that are being stopped -> the offset of the request."""
        self._reported: dict[str, str | None] = {}
        """Workers that were reported by WorkerLost -> the registration in that event."""
        self._lost: set[str] = set()
        """Workers that are gone, and whose end the driver has not reported yet."""

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        if not isinstance(state, ResourceManagerState):
            raise TypeError(f"{type(state).__name__} is not a state of a ResourceManager")
        self._observe(state)
        if self._compared is None:
            self._compared = threading.Event()
            self._workers.submit(self._compare, state.pool, self._compared)
        for instruction in self._started.take_new(role_address, instructions):
            match instruction:
                case StartWorkerProcess():
                    self._starts.submit(self._start, instruction, self._compared)
                case StopWorkerProcess():
                    self._workers.submit(self._stop, instruction, self._compared)
                case _:
                    raise TypeError(f"the ResourceManager's shell does not know {instruction!r}")
        self._watch.follow(state.workers)
        self._follow(state)

    def close(self) -> None:
        """Workers continue: the next leader takes them over, or the cluster's shutdown has asked them to leave."""
        pools = (self._starts, self._workers)
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        # It ends starts that wait.
        self._driver.close()
        for pool in pools:
            pool.shutdown()
        self._watch.close()

    def _observe(self, state: ResourceManagerState) -> None:
        workers, known = state.workers, state.pool.workers
        with self._lock:
            # Reports about workers that are gone have no meaning any more.
            for resource_id in [
                worker_id
                for worker_id in self._reported
                if worker_id not in workers and worker_id not in known
            ]:
                del self._reported[resource_id]
                if resource_id in self._addresses:
                    self._lost.add(resource_id)
        if workers is self._registered:
            return
        with self._lock:
            self._registered = workers
            late = [
                (workers[resource_id], reason)
                for resource_id, (address, reason) in self._ended_workers.items()
                if resource_id in workers and workers[resource_id].address == address
            ]
        for worker, reason in late:
            # It ended before its registration was read.
            self._report_lost(worker.resource_id, worker.instance_id, reason, None)

    def _compare(self, pool: WorkerPool, compared: threading.Event) -> None:
        try:
            self._settled()
            survivors = self._driver.survivors()
            with self._lock:
                self._addresses.update(survivors)
                for resource_id in survivors.keys() & pool.workers.keys():
                    self._causes[resource_id] = pool.workers[resource_id].cause
            for resource_id in sorted(survivors.keys() - pool.workers.keys()):
                _log.warning(
                    "stops an unknown worker of an earlier master",
                    resource_id=resource_id,
                )
                self._driver.stop(resource_id, "the ResourceManager does not know it")
            for resource_id, worker in pool.workers.items():
                # For the others the driver has not yet reported the result of its start or stop.
                if worker.driven and worker.state in _RUNNING and resource_id not in survivors:
                    reason = f"worker {resource_id} has not survived the jobmanager that started it"
                    self._report_lost(resource_id, self._instance_of(resource_id), reason, None)
        except PlatformUnavailable as error:
            _log.error("cannot find the workers of an earlier master", error=str(error))
        except Exception as error:
            _log.exception("cannot find the workers of an earlier master", error=str(error))
        finally:
            compared.set()

    def _start(self, instruction: StartWorkerProcess, compared: threading.Event) -> None:
        compared.wait()
        resource_id = instruction.resource_id
        with self._lock:
            self._starting[resource_id] = None
            self._causes[resource_id] = instruction.cause
        try:
            address = self._driver.start(resource_id, instruction.number_of_slots, instruction.slot_profile)
        except Exception as error:
            # Nobody waits for the result of this thread: without an event, requests wait for ever.
            with self._lock:
                self._starting.pop(resource_id)
            self._report_lost(
                resource_id, None, f"it cannot be started: {error or repr(error)}", instruction.cause
            )
            return
        body = resource_manager.WorkerStarted(resource_id=resource_id, address=address)
        self._say(RESOURCE_MANAGER, OutgoingEvent(RESOURCE_MANAGER, body, instruction.cause))
        with self._lock:
            self._addresses[resource_id] = address
            ended = self._starting.pop(resource_id)
        if ended is not None:
            self._on_exit(resource_id, ended)

    def _stop(self, instruction: StopWorkerProcess, compared: threading.Event) -> None:
        compared.wait()
        resource_id = instruction.resource_id
        with self._lock:
            self._stopping[resource_id] = instruction.cause
        try:
            if self._driver.stop(resource_id, instruction.reason):
                return
            reason = f"its process no longer runs; it was being stopped: {instruction.reason}"
        except Exception as error:
            # It is declared lost: a process that lives nevertheless registers again, or sends no heartbeats.
            reason = f"it cannot be stopped: {error or repr(error)}"
        self._report_lost(resource_id, self._instance_of(resource_id), reason, instruction.cause)

    def _on_exit(self, resource_id: str, reason: str) -> None:
        """Called when the driver reports that a worker has ended."""
        with self._lock:
            if resource_id in self._starting:
                # WorkerStarted comes first.
                self._starting[resource_id] = reason
                return
            asked_for = self._stopping.pop(resource_id, None)
            address = self._addresses.pop(resource_id, None)
            if address is not None:
                self._ended_workers[resource_id] = address, reason
                if len(self._ended_workers) > _REMEMBERED:
                    del self._ended_workers[next(iter(self._ended_workers))]
            if resource_id in self._lost:
                self._lost.remove(resource_id)
                return
        self._report_lost(resource_id, self._instance_of(resource_id), reason, asked_for)

    def _report(self, body: Body, cause: int | None) -> None:
        """Called when the driver has an event of the platform for the log."""
        if isinstance(body, resource_manager.ContainerCompleted):
            with self._lock:
                cause = self._causes.pop(body.resource_id, None)
        elif isinstance(body, resource_manager.PreemptionAnnounced):
            with self._lock:
                cause = self._causes.get(body.resource_id)
        self._say(RESOURCE_MANAGER, OutgoingEvent(RESOURCE_MANAGER, body, cause))

    def _on_process_end(self, resource_id: str, instance_id: str, reason: str) -> None:
        """Called when the monitor reports that a registered process has ended."""
        self._report_lost(resource_id, instance_id, reason, None)

    def _instance_of(self, resource_id: str) -> str | None:
        worker = self._registered.get(resource_id)
        return None if worker is None else worker.instance_id

    def _report_lost(self, resource_id: str, instance_id: str | None, reason: str, cause: int | None) -> None:
        with self._lock:
            if resource_id in self._reported and self._reported[resource_id] == instance_id:
                return
            self._reported[resource_id] = instance_id
        body = resource_manager.WorkerLost(
            resource_id=resource_id, instance_id=instance_id, exited=True, reason=reason
        )
        self._say(RESOURCE_MANAGER, OutgoingEvent(RESOURCE_MANAGER, body, cause))
