"""Workers in YARN containers (`resourcemanager.worker-driver: yarn`): this jobmanager is the ApplicationMaster.

The id of a request for a container is the number of its worker, so a container of an earlier attempt tells which worker
it is. Nothing else is kept: a restarted ApplicationMaster gets its containers from the answer to its registration.

One thread sends the heartbeats; they carry requests and bring allocated and completed containers. `start` waits for its
container, then asks the NodeManager to start the TaskExecutor.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final

import msgspec

from ....infra import threads
from ....infra.logging_setup import logger
from ....schemas import resource_manager
from ....schemas.body import Body
from ....schemas.types import JobStatus, ResourceProfile
from ...yarn.application_master import (
    ABORTED,
    Allocation,
    ApplicationMaster,
    Capability,
    CompletedContainer,
    Container,
    FinalStatus,
    NodeUpdate,
    Preemption,
    Registration,
    describe_end,
    find_excess,
)
from ...yarn.errors import AttemptSuperseded, JvmEnded, RequestRefused, YarnError
from ..worker_names import name_worker, number_of_worker
from .driver import ClusterEnd, OnExit, PlatformUnavailable, Report, WorkerNotStarted
from .yarn_events import completed_event, node_event, preemption_event, registered_event
from .yarn_launch import CreateContainer, YarnSettings

_log = logger(__name__)
_END_TIMEOUT_S: Final = 10.0
_LEAVE_TIMEOUT_S: Final = 30.0
"""Hadoop's client would try for many minutes."""


class YarnContainers:
    """The containers of this process as ApplicationMaster, through all its terms as leader."""

    def __init__(
        self,
        connect: Callable[[], ApplicationMaster],
        settings: YarnSettings,
        create_container: CreateContainer,
        on_failure: Callable[[Exception], None],
    ) -> None:
        """`connect` is called when this process leads for the first time. `on_failure` receives the error after which
        this process can't be the ApplicationMaster any more."""
        self._connect = connect
        self._settings = settings
        self._create_container = create_container
        self._on_failure = on_failure
        self._registering = threading.Lock()
        self._master: ApplicationMaster | None = None
        self._changed = threading.Condition()
        """Guards what follows; notified for an earlier heartbeat."""
        self._waiting: dict[str, Future[Container]] = {}
        """Workers without a container yet."""
        self._containers: dict[str, Container] = {}
        """By resource id."""
        self._workers: dict[str, str] = {}
        """Container id -> resource id."""
        self._stopping: dict[str, str] = {}
        """Resource id -> why it is being stopped."""
        self._registration: Registration | None = None
        self._priorities: dict[Capability, int] = {}
        """YARN wants a priority of its own for each size of container: the smaller number goes first."""
        self._by_node: dict[str, dict[str, None]] = {}
        """NodeManager -> workers that have run there since YARN's last word about it."""
        self._claimed: set[str] = set()
        """Containers whose preemption is announced."""
        self._listener: YarnDriver | None = None
        self._has_led = False
        self._is_closed = False
        self._beating: threading.Thread | None = None
        self._leaving: threading.Thread | None = None
        self._leave_until = 0.0

    def create(self, on_exit: OnExit, report: Report) -> YarnDriver:
        """Returns the driver of a new term, which hears of all containers from now on."""
        driver = YarnDriver(self, on_exit, report)
        with self._changed:
            self._has_led = True
            self._listener = driver
        return driver

    def end_term(self, driver: YarnDriver) -> None:
        """Reports nothing more to the driver of a term that has ended, and ends its waiting starts. The next term
        starts nothing before."""
        with self._changed:
            if self._listener is driver:
                self._listener = None
        self._end_waiting("this process does not lead any more")

    def start(self, resource_id: str, number_of_slots: int, slot_profile: ResourceProfile | None) -> str:
        """Returns the address of a worker's container; waits until YARN has allocated it."""
        master, number = self._registered(), number_of_worker(resource_id)
        wanted = self._create_container(resource_id, number_of_slots, slot_profile)
        if self._registration is not None and (fault := find_excess(wanted.capability, self._registration)):
            raise WorkerNotStarted(f"{resource_id} {fault}")
        with self._changed:
            container = self._containers.get(resource_id)
            if container is not None:
                return container.address
            allocated = self._waiting.get(resource_id)
            is_new = allocated is None
            if allocated is None:
                allocated = self._waiting[resource_id] = Future()
        try:
            if is_new:
                master.request_container(number, self._prioritised(wanted.capability))
                self._beat_soon()
            container = allocated.result()
            if is_new:
                master.start_container(container, wanted.launch)
        except WorkerNotStarted:
            raise
        except Exception as error:
            # Whatever went wrong: a container that runs nothing must not fill the cluster.
            self._give_back(master, resource_id)
            raise WorkerNotStarted(f"YARN does not start {resource_id}: {error or repr(error)}") from error
        _log.info("worker started", resource_id=resource_id, container=container.container_id)
        return container.address

    def stop(self, resource_id: str, reason: str) -> bool:
        """Withdraws a worker's request, or gives its container back."""
        master = self._registered()
        with self._changed:
            waiting = self._waiting.pop(resource_id, None)
            container = self._containers.get(resource_id)
            if container is not None:
                self._stopping[resource_id] = reason
        if waiting is not None:
            self._withdraw(resource_id)
            waiting.set_exception(WorkerNotStarted(f"YARN has allocated no container: {reason}"))
        if container is None:
            return False
        master.stop_container(container)
        self._beat_soon()
        return True

    def survivors(self) -> Mapping[str, str]:
        """Returns the address of each worker with a container, those of earlier attempts included.

        Raises PlatformUnavailable.
        """
        try:
            self._registered()
        except YarnError as error:
            raise PlatformUnavailable(str(error)) from error
        with self._changed:
            return {resource_id: container.address for resource_id, container in self._containers.items()}

    def owns(self, end: ClusterEnd) -> bool:
        """Returns whether an earlier attempt of this application has ended after the cluster, and before it
        unregistered."""
        return bool(end.application) and end.application == self._settings.application_id

    def leave(self, end: ClusterEnd) -> bool:
        """Unregisters in a thread, so the application ends; without it, YARN starts the next attempt when this process
        has ended. A process that has not led has nothing to leave, unless an earlier attempt left it that."""
        if not self._has_led and not self.owns(end):
            return True
        if self._leaving is None:
            self._leaving = threads.Thread(target=self._unregister, args=[end], name="YARN end")
            self._leaving.start()
            self._leave_until = time.monotonic() + _LEAVE_TIMEOUT_S
        return not self._leaving.is_alive() or time.monotonic() > self._leave_until

    def close(self) -> None:
        """Ends the conversation."""
        with self._changed:
            self._is_closed = True
            self._listener = None
            self._changed.notify_all()
        if self._beating is not None:
            self._beating.join(_END_TIMEOUT_S)
        if self._master is not None:
            self._master.close()

    def _unregister(self, end: ClusterEnd) -> None:
        try:
            master = self._registered()
        except YarnError as error:
            _log.warning("the application does not end in order", reason=str(error))
            return
        with self._changed:
            # A heartbeat after the end is an error.
            self._is_closed = True
            self._changed.notify_all()
        if self._beating is not None:
            self._beating.join(_END_TIMEOUT_S)
        status = _final_status(end.job_status)
        staging = self._settings.staging_directory
        try:
            master.unregister(status, end.reason, self._settings.tracking_url)
            if staging and not master.delete_directory(staging):
                _log.warning("there is no staging directory", uri=staging)
                staging = ""
        except YarnError as error:
            _log.warning("the application does not end in order", reason=str(error))
            return
        _log.info("application unregistered", status=status.value, diagnostics=end.reason)
        body = resource_manager.ApplicationMasterUnregistered(
            final_status=status.value, diagnostics=end.reason, staging_directory=staging
        )
        self._report(body, end.cause)

    def _registered(self) -> ApplicationMaster:
        """Returns the conversation; registers this attempt before its first use."""
        with self._registering:
            if self._master is not None:
                return self._master
            settings = self._settings
            try:
                master = self._connect()
                registration = master.register(settings.host, settings.port, settings.tracking_url)
                self._adopt(master, registration.previous)
            except Exception as error:
                # The next attempt may have another machine.
                self._on_failure(error)
                raise
            self._master, self._registration = master, registration
            self._beating = threads.Thread(target=self._beat, args=[master], name="YARN heartbeats")
            self._beating.start()
        self._report(registered_event(registration, settings.tracking_url))
        return master

    def _prioritised(self, wanted: Capability) -> Capability:
        with self._changed:
            priority = self._priorities.setdefault(wanted, len(self._priorities) + 1)
        return msgspec.structs.replace(wanted, priority=priority)

    def _adopt(self, master: ApplicationMaster, previous: tuple[Container, ...]) -> None:
        """Takes over containers of earlier attempts. One that was allocated and never started is given back, and so is
        a second one of the same worker."""
        for container in sorted(previous, key=lambda each: each.container_id):
            resource_id = name_worker(container.request_id)
            with self._changed:
                is_double = resource_id in self._containers
            if is_double or not _is_running(master, container):
                _log.warning("gives a container back that runs nothing", container=container.container_id)
                _release(master, container)
                continue
            self._keep(resource_id, container)

    def _keep(self, resource_id: str, container: Container) -> None:
        with self._changed:
            self._containers[resource_id] = container
            self._workers[container.container_id] = resource_id
            self._by_node.setdefault(container.node, {})[resource_id] = None

    def _end_waiting(self, reason: str) -> None:
        with self._changed:
            waiting, self._waiting = self._waiting, {}
        for resource_id, future in waiting.items():
            self._withdraw(resource_id)
            future.set_exception(WorkerNotStarted(reason))

    def _report(self, body: Body, cause: int | None = None) -> None:
        with self._changed:
            listener = self._listener
        if listener is not None:
            listener.report(body, cause)

    def _give_back(self, master: ApplicationMaster, resource_id: str) -> None:
        with self._changed:
            self._waiting.pop(resource_id, None)
            container = self._containers.pop(resource_id, None)
            if container is not None:
                self._workers.pop(container.container_id, None)
        if container is not None:
            _release(master, container)

    def _withdraw(self, resource_id: str) -> None:
        """Withdraws a request; if that fails, its container is given back when it comes."""
        try:
            self._registered().withdraw_request(number_of_worker(resource_id))
        except YarnError as error:
            _log.warning("cannot withdraw a request", resource_id=resource_id, reason=str(error))

    def _beat_soon(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _beat(self, master: ApplicationMaster) -> None:
        while True:
            try:
                self._on_allocation(master, master.allocate())
            except (AttemptSuperseded, JvmEnded) as error:
                self._on_failure(error)
                return
            except RequestRefused as error:
                self._end_waiting(f"YARN refuses requests for containers: {error}")
            except YarnError as error:
                # Hadoop's client has tried for minutes. The ResourceManager of YARN may come back.
                _log.warning("YARN does not answer a heartbeat", reason=str(error))
            if self._wait_for_beat():
                return

    def _wait_for_beat(self) -> bool:
        """Waits until the next heartbeat is due; returns whether the conversation has ended."""
        settings = self._settings
        with self._changed:
            if not self._is_closed:
                is_busy = self._waiting or self._stopping
                self._changed.wait(settings.request_interval_s if is_busy else settings.heartbeat_s)
            return self._is_closed

    def _on_allocation(self, master: ApplicationMaster, allocation: Allocation) -> None:
        for update in allocation.nodes:
            self._on_node_update(update)
        for preemption in allocation.preemptions:
            self._on_preemption(preemption)
        self._adopt(master, allocation.previous)
        for container in allocation.allocated:
            self._on_allocated(master, container)
        for completed in allocation.completed:
            self._on_completed(completed)

    def _on_node_update(self, update: NodeUpdate) -> None:
        with self._changed:
            workers = self._by_node.get(update.node, {})
            # Of the nodes of the whole cluster, those that workers ran on are of interest.
            is_known = update.node in self._by_node
            left = {each: None for each in workers if each in self._containers}
            if is_known:
                self._by_node[update.node] = left
        _log.info("node update", node=update.node, state=update.state, health=update.health_report)
        if is_known:
            self._report(node_event(update, workers))

    def _on_preemption(self, preemption: Preemption) -> None:
        with self._changed:
            resource_id = self._workers.get(preemption.container_id)
            # YARN repeats it with every heartbeat.
            if resource_id is None or preemption.container_id in self._claimed:
                return
            self._claimed.add(preemption.container_id)
        _log.warning(
            "YARN will preempt a container", container=preemption.container_id, resource_id=resource_id
        )
        self._report(preemption_event(resource_id, preemption))

    def _on_allocated(self, master: ApplicationMaster, container: Container) -> None:
        resource_id = name_worker(container.request_id)
        with self._changed:
            waiting = self._waiting.pop(resource_id, None)
        if waiting is None:
            _log.info("gives a container back that is not needed", container=container.container_id)
            _release(master, container)
            return
        master.withdraw_request(container.request_id)
        self._keep(resource_id, container)
        waiting.set_result(container)

    def _on_completed(self, completed: CompletedContainer) -> None:
        with self._changed:
            resource_id = self._workers.pop(completed.container_id, None)
            if resource_id is None:
                return
            container = self._containers.pop(resource_id)
            asked = self._stopping.pop(resource_id, None)
            self._claimed.discard(completed.container_id)
            if completed.exit_status != ABORTED or asked is not None:
                # The word about a lost node may come later than that about its containers.
                self._by_node.get(container.node, {}).pop(resource_id, None)
            listener = self._listener
        how = describe_end(container, completed)
        _log.info("container completed", resource_id=resource_id, how=how)
        self._report(completed_event(resource_id, container, completed))
        if listener is not None:
            listener.on_exit(resource_id, how if asked is None else f"{how}; it was being stopped: {asked}")


class YarnDriver:
    """The driver of one term."""

    def __init__(self, containers: YarnContainers, on_exit: OnExit, report: Report) -> None:
        self._containers = containers
        self.on_exit = on_exit
        self.report = report

    def start(
        self, resource_id: str, number_of_slots: int, slot_profile: ResourceProfile | None = None
    ) -> str:
        return self._containers.start(resource_id, number_of_slots, slot_profile)

    def stop(self, resource_id: str, reason: str) -> bool:
        return self._containers.stop(resource_id, reason)

    def survivors(self) -> Mapping[str, str]:
        return self._containers.survivors()

    def close(self) -> None:
        self._containers.end_term(self)


def _final_status(job_status: JobStatus | None) -> FinalStatus:
    """Returns the end of an application. The cluster of a job that has not ended was stopped before."""
    match job_status:
        case None | JobStatus.FINISHED:
            return FinalStatus.SUCCEEDED
        case JobStatus.FAILED:
            return FinalStatus.FAILED
        case _:
            return FinalStatus.KILLED


def _release(master: ApplicationMaster, container: Container) -> None:
    """Gives a container back; one that can't be given back ends with the application."""
    try:
        master.stop_container(container)
    except YarnError as error:
        _log.warning("cannot give a container back", container=container.container_id, reason=str(error))


def _is_running(master: ApplicationMaster, container: Container) -> bool:
    """Returns whether a container runs its process; also if its NodeManager does not answer: then YARN will report its
    end."""
    try:
        return master.is_running(container)
    except YarnError as error:
        _log.warning("a NodeManager does not answer", node=container.node, reason=str(error))
        return True
