"""The ResourceManager's shell: has a driver start and stop workers, and says which ones are gone.

Whoever knows first that a worker's process has ended says so: the driver, or the watch over registered processes of
this machine; heartbeats say the rest. Of one registration it is said once. A new leader's shell holds the workers
that survived against those that the log knows: strangers are stopped, and who did not survive is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from immutables import Map

from ...infra import threads
from ...infra.logging_setup import logger
from ...schemas import resource_manager
from ..core.instruction_tracker import InstructionTracker
from ..core.role import RESOURCE_MANAGER, Emit, Instruction, OutgoingEvent
from .drivers import WorkerDriver
from .instructions import StartWorkerProcess, StopWorkerProcess
from .state import ResourceManagerState, WorkerRegistration
from .worker_pool import WorkerPool, WorkerState

_log = logger(__name__)
_RUNNING = frozenset({WorkerState.STARTED, WorkerState.REGISTERED, WorkerState.RELEASING})
_AT_ONCE = 4
_REMEMBERED = 256
"""Ended processes whose registration may be on its way still."""


class Watch(Protocol):
    """The part of heartbeats.LocalProcessMonitor that the shell uses."""

    def follow(self, workers: Mapping[str, WorkerRegistration]) -> None: ...

    def close(self) -> None: ...


Follow = Callable[[ResourceManagerState], None]
NewDriver = Callable[[Callable[[str, str], None]], WorkerDriver]
"""OnExit -> a driver that calls it."""
NewWatch = Callable[[Callable[[str, str, str], None]], Watch]
"""OnEnd -> a watch that calls it."""


class ResourceManagerShell:
    """The shell of one term. It performs StartWorkerProcess and StopWorkerProcess. `follow` receives each state on the
    host's thread. `settled` returns when the shells of this process's earlier terms start and stop nothing any more."""

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
        self._driver = new_driver(self._on_exit)
        self._watch = new_watch(self._on_process_end)
        self._begun = InstructionTracker()
        self._compared: threading.Event | None = None
        self._workers = threads.Pool(_AT_ONCE, "workers")
        self._lock = threading.Lock()
        self._registered: Map[str, WorkerRegistration] = Map()
        self._addresses: dict[str, str] = {}
        """Of the workers that the driver has started: where each runs."""
        self._starting: dict[str, str | None] = {}
        """Workers that WorkerStarted has not been said of -> why they ended meanwhile, if they did."""
        self._gone: dict[str, tuple[str, str]] = {}
        """Workers that have ended: address and reason."""
        self._stopping: dict[str, int] = {}
        """Workers that are being stopped -> the offset at which that was asked for."""
        self._said: dict[str, str | None] = {}
        """Workers that WorkerLost was said of -> the registration that it named."""

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        if not isinstance(state, ResourceManagerState):
            raise TypeError(f"{type(state).__name__} is no state of a ResourceManager")
        self._observe(state)
        if self._compared is None:
            self._compared = threading.Event()
            self._workers.submit(self._compare, state.pool, self._compared)
        for instruction in self._begun.take_new(role_address, instructions):
            match instruction:
                case StartWorkerProcess():
                    self._workers.submit(self._start, instruction, self._compared)
                case StopWorkerProcess():
                    self._workers.submit(self._stop, instruction, self._compared)
                case _:
                    raise TypeError(f"the ResourceManager's shell does not know {instruction!r}")
        self._watch.follow(state.workers)
        self._follow(state)

    def close(self) -> None:
        """Workers continue: the next leader takes them over, or the cluster's shutdown has told them to leave."""
        self._workers.shutdown(cancel_futures=True)
        self._watch.close()
        self._driver.close()

    def _observe(self, state: ResourceManagerState) -> None:
        workers, known = state.workers, state.pool.workers
        with self._lock:
            # Of workers that are gone nothing more is told, and if it were, it would mean nothing.
            for resource_id in [each for each in self._said if each not in workers and each not in known]:
                del self._said[resource_id]
        if workers is self._registered:
            return
        with self._lock:
            self._registered = workers
            late = [
                (workers[resource_id], reason)
                for resource_id, (address, reason) in self._gone.items()
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
            for resource_id in sorted(survivors.keys() - pool.workers.keys()):
                _log.warning("a worker survived that nobody knows: it is stopped", resource_id=resource_id)
                self._driver.stop(resource_id, "no ResourceManager knows it")
            for resource_id, worker in pool.workers.items():
                # Of the others the driver has yet to say what became of its start or stop.
                if worker.driven and worker.state in _RUNNING and resource_id not in survivors:
                    reason = f"worker {resource_id} has not survived the jobmanager that started it"
                    self._report_lost(resource_id, self._instance_of(resource_id), reason, None)
        except Exception as error:
            _log.exception("survivors can't be found", error=str(error))
        finally:
            compared.set()

    def _start(self, instruction: StartWorkerProcess, compared: threading.Event) -> None:
        compared.wait()
        resource_id = instruction.resource_id
        with self._lock:
            self._starting[resource_id] = None
        try:
            address = self._driver.start(resource_id, instruction.number_of_slots)
        except Exception as error:
            # Nobody asks for the outcome of this thread: what is not said here keeps requests waiting.
            with self._lock:
                self._starting.pop(resource_id)
            self._report_lost(
                resource_id, None, f"it can't be started: {error or repr(error)}", instruction.cause
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
            reason = f"its process does not run any more; it was to be stopped: {instruction.reason}"
        except Exception as error:
            # It is taken for gone: a process that lives all the same registers again, or falls silent.
            reason = f"it can't be stopped: {error or repr(error)}"
        self._report_lost(resource_id, self._instance_of(resource_id), reason, instruction.cause)

    def _on_exit(self, resource_id: str, reason: str) -> None:
        """The driver reports that a worker has ended."""
        with self._lock:
            if resource_id in self._starting:
                # WorkerStarted is said first.
                self._starting[resource_id] = reason
                return
            asked_for = self._stopping.pop(resource_id, None)
            address = self._addresses.pop(resource_id, None)
            if address is not None:
                self._gone[resource_id] = address, reason
                if len(self._gone) > _REMEMBERED:
                    del self._gone[next(iter(self._gone))]
        self._report_lost(resource_id, self._instance_of(resource_id), reason, asked_for)

    def _on_process_end(self, resource_id: str, instance_id: str, reason: str) -> None:
        """The monitor reports that a registered process has ended."""
        self._report_lost(resource_id, instance_id, reason, None)

    def _instance_of(self, resource_id: str) -> str | None:
        worker = self._registered.get(resource_id)
        return None if worker is None else worker.instance_id

    def _report_lost(self, resource_id: str, instance_id: str | None, reason: str, cause: int | None) -> None:
        with self._lock:
            if resource_id in self._said and self._said[resource_id] == instance_id:
                return
            self._said[resource_id] = instance_id
        body = resource_manager.WorkerLost(
            resource_id=resource_id, instance_id=instance_id, exited=True, reason=reason
        )
        self._say(RESOURCE_MANAGER, OutgoingEvent(RESOURCE_MANAGER, body, cause))
