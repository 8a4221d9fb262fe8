"""The ResourceManager's shell with a recording driver: its reports of starts, stops and ends."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping

import pytest
from immutables import Map
from msgspec.structs import replace
from polling import TIMEOUT_S

from tailrace.schemas import resource_manager
from tailrace.schemas.body import Body
from tailrace.schemas.types import HardwareDescription, ResourceProfile
from tailrace.services.core.role import RESOURCE_MANAGER, Instruction, OutgoingEvent
from tailrace.services.resource_manager.drivers import OnExit, PlatformUnavailable, Report, WorkerNotStarted
from tailrace.services.resource_manager.instructions import StartWorkerProcess, StopWorkerProcess
from tailrace.services.resource_manager.shell import ResourceManagerShell
from tailrace.services.resource_manager.state import ResourceManagerState, WorkerRegistration
from tailrace.services.resource_manager.worker_pool import Worker, WorkerPool, WorkerState

HARDWARE = HardwareDescription(cpu_cores=1, physical_memory=1, jvm_heap=1, managed_memory=0)


class Driver:
    """A driver that runs no process. `dies_at_once`: a worker ends before its start returns."""

    def __init__(self) -> None:
        self.on_exit: OnExit = lambda _name, _reason: None
        self.report: Report = lambda _body, _cause: None
        self.running: dict[str, str] = {}
        self.started: list[tuple[str, int]] = []
        self.stopped: queue.Queue[tuple[str, str]] = queue.Queue()
        self.fails = False
        self.dies_at_once = False
        self.refusal: str | None = None
        self.looking = threading.Event()
        self.looking.set()

    def start(
        self, resource_id: str, number_of_slots: int, slot_profile: ResourceProfile | None = None
    ) -> str:
        del slot_profile
        if self.fails:
            raise WorkerNotStarted("no room on this machine")
        self.started.append((resource_id, number_of_slots))
        self.running[resource_id] = f"h:{resource_id}"
        if self.dies_at_once:
            self.exits(resource_id)
        return f"h:{resource_id}"

    def stop(self, resource_id: str, reason: str) -> bool:
        self.stopped.put((resource_id, reason))
        return resource_id in self.running

    def survivors(self) -> Mapping[str, str]:
        self.looking.wait()
        if self.refusal is not None:
            raise PlatformUnavailable(self.refusal)
        return dict(self.running)

    def close(self) -> None: ...

    def exits(self, resource_id: str) -> None:
        del self.running[resource_id]
        self.on_exit(resource_id, "it ended")


class Watch:
    def __init__(self) -> None:
        self.on_end: Callable[[str, str, str], None] = lambda *_: None

    def follow(self, workers: Mapping[str, WorkerRegistration]) -> None: ...

    def close(self) -> None: ...


class Bench:
    def __init__(self) -> None:
        self.driver, self.watch = Driver(), Watch()
        self.sent: queue.Queue[Body] = queue.Queue()
        self.causes: list[int | None] = []
        self.state = ResourceManagerState()
        self.shell = ResourceManagerShell(self._say, self._driver, self._watch)

    def _say(self, sender: str, owed: OutgoingEvent) -> None:
        assert (sender, owed.recipient) == (RESOURCE_MANAGER, RESOURCE_MANAGER)
        self.causes.append(owed.cause)
        self.sent.put(owed.body)

    def _driver(self, on_exit: OnExit, report: Report) -> Driver:
        self.driver.on_exit, self.driver.report = on_exit, report
        return self.driver

    def _watch(self, on_end: Callable[[str, str, str], None]) -> Watch:
        self.watch.on_end = on_end
        return self.watch

    def knows(self, name: str, state: WorkerState, *, driven: bool = True) -> None:
        worker = Worker(name, state, 1, 1, driven=driven)
        self.state = replace(self.state, pool=WorkerPool(self.state.pool.workers.set(name, worker)))

    def registers(self, name: str, instance: str = "i") -> None:
        registration = WorkerRegistration(
            resource_id=name, instance_id=instance, address=f"h:{name}", hardware=HARDWARE, cause=2
        )
        self.state = replace(self.state, workers=self.state.workers.set(name, registration))

    def leaves(self, name: str) -> None:
        self.state = replace(self.state, workers=Map())

    def perform(self, *instructions: Instruction) -> None:
        self.shell.perform(RESOURCE_MANAGER, instructions, self.state)

    def next(self) -> Body:
        return self.sent.get(timeout=TIMEOUT_S)

    def next_loss(self) -> tuple[str, str | None, str]:
        body = self.next()
        assert isinstance(body, resource_manager.WorkerLost)
        assert body.exited
        return body.resource_id, body.instance_id, body.reason


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.driver.looking.set()
    made.shell.close()
    assert made.sent.empty()


START = StartWorkerProcess("w", 4, 5)
STOP = StopWorkerProcess("w", "idle", 6)
STARTED = resource_manager.WorkerStarted(resource_id="w", address="h:w")


def test_worker_is_started_once_per_demand(bench: Bench) -> None:
    bench.perform(START)
    bench.perform(START)
    assert bench.next() == STARTED
    assert bench.driver.started == [("w", 4)]


def test_worker_that_cannot_be_started_is_lost(bench: Bench) -> None:
    bench.driver.fails = True
    bench.perform(START)
    assert bench.next_loss() == ("w", None, "it cannot be started: no room on this machine")


def test_worker_that_ends_at_once_is_reported_started_first(bench: Bench) -> None:
    bench.driver.dies_at_once = True
    bench.perform(START)
    assert bench.next() == STARTED
    assert bench.next_loss() == ("w", None, "it ended")


def test_end_of_registered_worker_is_reported_once(bench: Bench) -> None:
    bench.perform(START)
    bench.next()
    bench.registers("w")
    bench.perform()
    bench.watch.on_end("w", "i", "its process has ended")
    bench.driver.exits("w")
    assert bench.next_loss() == ("w", "i", "its process has ended")


def test_worker_that_ended_before_its_registration_was_read_is_lost(bench: Bench) -> None:
    bench.perform(START)
    bench.next()
    bench.driver.exits("w")
    assert bench.next_loss() == ("w", None, "it ended")
    bench.registers("w")
    bench.perform()
    assert bench.next_loss() == ("w", "i", "it ended")


def test_worker_is_stopped_once_and_its_end_reported_after_it_has_left(bench: Bench) -> None:
    bench.perform(START)
    bench.next()
    bench.registers("w")
    bench.perform(STOP)
    bench.leaves("w")
    bench.perform(STOP)
    assert bench.driver.stopped.get(timeout=TIMEOUT_S) == ("w", "idle")
    bench.driver.exits("w")
    assert bench.next_loss() == ("w", None, "it ended")
    assert bench.causes[-1] == STOP.cause
    assert bench.driver.stopped.empty()


def test_worker_that_does_not_run_counts_as_stopped(bench: Bench) -> None:
    bench.perform(STOP)
    name, instance, reason = bench.next_loss()
    assert (name, instance) == ("w", None)
    assert reason == "its process no longer runs; it was being stopped: idle"


def test_unknown_survivor_is_stopped_and_known_one_kept(bench: Bench) -> None:
    bench.driver.running = {"known": "h:known", "stranger": "h:stranger"}
    bench.knows("known", WorkerState.REGISTERED)
    bench.perform()
    name, _ = bench.driver.stopped.get(timeout=TIMEOUT_S)
    assert name == "stranger"
    bench.driver.exits("known")
    assert bench.next_loss() == ("known", None, "it ended")


def test_missing_worker_is_lost_unless_other_driver_or_pending_start_or_stop(
    bench: Bench,
) -> None:
    bench.knows("registered", WorkerState.REGISTERED)
    bench.registers("registered")
    bench.knows("by hand", WorkerState.REGISTERED, driven=False)
    bench.registers("by hand")
    bench.knows("w", WorkerState.REQUESTED)
    bench.knows("stopping", WorkerState.STOPPING)
    bench.perform(START)
    assert bench.next_loss()[:2] == ("registered", "i")
    assert bench.next() == STARTED


def test_survivors_are_recovered_before_any_start(bench: Bench) -> None:
    bench.driver.looking.clear()
    bench.perform(START)
    assert bench.driver.started == []
    bench.driver.looking.set()
    assert bench.next() == STARTED


def test_platform_that_refuses_list_of_workers_is_one_line_and_starts_continue(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    bench.driver.refusal = "the API server may not be asked for pods: Forbidden"
    bench.perform(START)
    assert bench.next() == STARTED
    log = "".join(capfd.readouterr())
    assert "Traceback" not in log
    (line,) = [line for line in log.splitlines() if "cannot find the workers" in line]
    assert bench.driver.refusal in line


def test_shell_keeps_nothing_of_worker_that_is_gone(bench: Bench) -> None:
    bench.registers("w")
    bench.perform()
    bench.watch.on_end("w", "i", "its process has ended")
    bench.perform()
    bench.watch.on_end("w", "i", "its process has ended")
    assert bench.next_loss() == ("w", "i", "its process has ended")
    assert bench.sent.empty()
    bench.leaves("w")
    bench.perform()
    bench.registers("w")
    bench.perform()
    bench.watch.on_end("w", "i", "and again")
    assert bench.next_loss() == ("w", "i", "and again")


def test_end_that_platform_reports_after_loss_is_no_second_loss(bench: Bench) -> None:
    bench.perform(START)
    assert bench.next() == STARTED
    bench.registers("w")
    bench.perform(START)
    bench.watch.on_end("w", "i", "its process has ended")
    assert bench.next_loss() == ("w", "i", "its process has ended")
    bench.leaves("w")
    bench.perform()
    bench.driver.exits("w")


def test_completed_container_is_reported_with_cause_of_worker(bench: Bench) -> None:
    bench.perform(START)
    assert bench.next() == STARTED
    completed = resource_manager.ContainerCompleted(
        resource_id="w", container_id="c", node="n:1", exit_status=137, diagnostics=""
    )
    bench.driver.report(completed, None)
    assert bench.next() == completed
    assert bench.causes[-1] == START.cause
