"""Workers in YARN containers, against an ApplicationMaster whose answers the test writes."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec
import pytest
from polling import wait_until

from tailrace.schemas import resource_manager
from tailrace.schemas.body import Body
from tailrace.schemas.types import JobStatus, ResourceProfile
from tailrace.services.configuration import Configuration
from tailrace.services.resource_manager.drivers import ClusterEnd, WorkerNotStarted
from tailrace.services.resource_manager.drivers.yarn import YarnContainers, YarnDriver
from tailrace.services.resource_manager.drivers.yarn_launch import (
    WorkerContainer,
    YarnSettings,
    create_launch,
    yarn_settings,
)
from tailrace.services.yarn.application_master import (
    Allocation,
    Capability,
    CompletedContainer,
    Container,
    ContainerLaunch,
    FinalStatus,
    LocalResource,
    NodeUpdate,
    Preemption,
    Registration,
    application_of,
    describe_end,
)
from tailrace.services.yarn.errors import AttemptSuperseded, RequestRefused, YarnError

TIMEOUT_S = 90.0
CAPABILITY = Capability(1024, 2)
FIRST, SECOND = Container("container_1", "n1:45", 1), Container("container_2", "n2:45", 2)
LAUNCH = ContainerLaunch("true", {}, {})
SETTINGS = YarnSettings(
    "am", 8081, "http://am:8081", 0.05, 0.01, "hdfs://x/.tailrace/app", "application_1_0002"
)
LARGE = ResourceProfile(
    cpu_cores=3.0,
    heap_memory_mb=2048,
    direct_memory_mb=0,
    native_memory_mb=0,
    network_memory_mb=0,
    managed_memory_mb=512,
)


class ScriptedMaster:
    """YARN as the test wants it. `requests`: the ids of requests that stand."""

    def __init__(self, previous: tuple[Container, ...] = ()) -> None:
        self.previous = previous
        self.calls: queue.Queue[tuple[object, ...]] = queue.Queue()
        self.answers: queue.Queue[Allocation | YarnError] = queue.Queue()
        self.requests: set[int] = set()
        self.capabilities: dict[int, Capability] = {}
        self.never_started: set[str] = set()
        self.refusal: Exception | None = None

    def register(self, host: str, port: int, tracking_url: str) -> Registration:
        self.calls.put(("register", host, port, tracking_url))
        return Registration("application_1", 2, "default", 4096, 8, self.previous)

    def request_container(self, request_id: int, capability: Capability) -> None:
        self.capabilities[request_id] = capability
        self.requests.add(request_id)
        self.calls.put(("request", request_id))

    def withdraw_request(self, request_id: int) -> None:
        self.requests.discard(request_id)

    def allocate(self) -> Allocation:
        try:
            answer = self.answers.get_nowait()
        except queue.Empty:
            return Allocation()
        if isinstance(answer, YarnError):
            raise answer
        return answer

    def start_container(self, container: Container, launch: ContainerLaunch) -> None:
        assert launch is LAUNCH
        if self.refusal is not None:
            raise self.refusal
        self.calls.put(("start", container.container_id))

    def is_running(self, container: Container) -> bool:
        return container.container_id not in self.never_started

    def stop_container(self, container: Container) -> None:
        self.calls.put(("stop", container.container_id))

    def unregister(self, status: FinalStatus, diagnostics: str, tracking_url: str) -> None:
        self.calls.put(("unregister", status, diagnostics, tracking_url))

    def delete_directory(self, uri: str) -> bool:
        self.calls.put(("delete", uri))
        return True

    def close(self) -> None:
        self.calls.put(("close",))

    def next(self) -> tuple[object, ...]:
        return self.calls.get(timeout=TIMEOUT_S)


def create_container(
    resource_id: str, number_of_slots: int, slot_profile: ResourceProfile | None
) -> WorkerContainer:
    del resource_id, number_of_slots
    size = CAPABILITY if slot_profile is None else Capability(slot_profile.heap_memory_mb, 3)
    return WorkerContainer(size, LAUNCH)


class Bench:
    def __init__(self, previous: tuple[Container, ...] = (), *, leads: bool = True) -> None:
        self.master = ScriptedMaster(previous)
        self.failures: queue.Queue[Exception] = queue.Queue()
        self.exits: queue.Queue[tuple[str, str]] = queue.Queue()
        self.reports: queue.Queue[Body] = queue.Queue()
        self.containers = YarnContainers(lambda: self.master, SETTINGS, create_container, self.failures.put)
        if leads:
            self.driver = self.new_driver()
        self.threads = ThreadPoolExecutor(4)

    def new_driver(self) -> YarnDriver:
        return self.containers.create(
            lambda *end: self.exits.put(end), lambda body, cause: self.reports.put(body)
        )

    def registers(self) -> resource_manager.ApplicationMasterRegistered:
        assert self.master.next() == ("register", "am", 8081, "http://am:8081")
        body = self.reports.get(timeout=TIMEOUT_S)
        assert isinstance(body, resource_manager.ApplicationMasterRegistered)
        return body

    def starts(self, resource_id: str) -> Future[str]:
        """Returns the result of a start whose request has been made."""
        started = self.threads.submit(self.driver.start, resource_id, 2)
        assert self.master.next()[0] == "request"
        return started

    def runs(self, container: Container) -> None:
        """Starts the worker of a container."""
        started = self.starts(f"worker-{container.request_id}")
        self.master.answers.put(Allocation(allocated=(container,)))
        assert started.result(TIMEOUT_S) == container.address
        assert self.master.next() == ("start", container.container_id)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    made.driver.survivors()
    made.registers()
    yield made
    made.driver.close()
    made.containers.close()
    made.threads.shutdown()


def test_worker_runs_in_container_of_its_own_request(bench: Bench) -> None:
    first, second = bench.starts("worker-1"), bench.starts("worker-2")
    bench.master.answers.put(Allocation(allocated=(SECOND, FIRST)))
    assert first.result(TIMEOUT_S) == "n1:container_1"
    assert second.result(TIMEOUT_S) == "n2:container_2"
    assert not bench.master.requests
    assert bench.driver.survivors() == {"worker-1": "n1:container_1", "worker-2": "n2:container_2"}


def test_worker_with_container_is_not_started_again(bench: Bench) -> None:
    bench.runs(FIRST)
    assert bench.driver.start("worker-1", 2) == FIRST.address
    assert bench.master.calls.empty()


def test_container_that_nobody_waits_for_is_given_back(bench: Bench) -> None:
    bench.master.answers.put(Allocation(allocated=(FIRST,)))
    assert bench.master.next() == ("stop", "container_1")
    assert bench.driver.survivors() == {}


def test_completed_container_is_reported_with_exit_status_and_diagnostics(bench: Bench) -> None:
    bench.runs(FIRST)
    bench.master.answers.put(Allocation(completed=(CompletedContainer("container_1", 137, "Killed\nby 9"),)))
    resource_id, reason = bench.exits.get(timeout=TIMEOUT_S)
    assert resource_id == "worker-1"
    assert reason == (
        "its container container_1 on n1:45 has completed with exit status 137 (signal 9): Killed by 9"
    )
    assert bench.reports.get(timeout=TIMEOUT_S) == resource_manager.ContainerCompleted(
        resource_id="worker-1",
        container_id="container_1",
        node="n1:45",
        exit_status=137,
        diagnostics="Killed\nby 9",
    )


def test_stopped_worker_gives_its_container_back_and_says_why(bench: Bench) -> None:
    bench.runs(FIRST)
    assert bench.driver.stop("worker-1", "idle")
    assert bench.master.next() == ("stop", "container_1")
    bench.master.answers.put(Allocation(completed=(CompletedContainer("container_1", -105, ""),)))
    assert bench.exits.get(timeout=TIMEOUT_S)[1].endswith(
        "exit status -105 (stopped by the ApplicationMaster); it was being stopped: idle"
    )
    assert not bench.driver.stop("worker-1", "idle")


def test_stop_before_allocation_withdraws_request(bench: Bench) -> None:
    started = bench.starts("worker-1")
    assert not bench.driver.stop("worker-1", "the cluster ends")
    with pytest.raises(WorkerNotStarted, match="the cluster ends"):
        started.result(TIMEOUT_S)
    assert not bench.master.requests


def test_end_of_term_ends_waiting_starts_and_keeps_containers(bench: Bench) -> None:
    bench.runs(FIRST)
    waiting = bench.starts("worker-2")
    bench.driver.close()
    with pytest.raises(WorkerNotStarted, match="does not lead"):
        waiting.result(TIMEOUT_S)
    assert not bench.master.requests
    assert bench.new_driver().survivors() == {"worker-1": FIRST.address}


@pytest.mark.parametrize(
    "refusal", [YarnError("InvalidToken: too late"), ValueError("InvalidToken: too late")]
)
def test_container_that_cannot_be_started_is_given_back(bench: Bench, refusal: Exception) -> None:
    bench.master.refusal = refusal
    started = bench.starts("worker-1")
    bench.master.answers.put(Allocation(allocated=(FIRST,)))
    with pytest.raises(WorkerNotStarted, match="InvalidToken: too late"):
        started.result(TIMEOUT_S)
    assert bench.master.next() == ("stop", "container_1")
    assert bench.driver.survivors() == {}


def test_next_attempt_adopts_running_containers_and_gives_others_back() -> None:
    double = Container("container_9", "n1:45", 1)
    bench = Bench((SECOND, FIRST, double))
    bench.master.never_started.add("container_2")
    assert bench.driver.survivors() == {"worker-1": FIRST.address}
    registered = bench.registers()
    assert registered.previous_containers == ("container_2", "container_1", "container_9")
    assert {bench.master.next(), bench.master.next()} == {("stop", "container_2"), ("stop", "container_9")}
    bench.master.answers.put(Allocation(completed=(CompletedContainer("container_1", 1, ""),)))
    assert bench.exits.get(timeout=TIMEOUT_S)[0] == "worker-1"
    bench.containers.close()


def test_refused_heartbeat_is_sent_again_and_superseded_attempt_ends(bench: Bench) -> None:
    bench.master.answers.put(YarnError("ConnectException: no"))
    bench.runs(FIRST)
    bench.master.answers.put(AttemptSuperseded("ApplicationAttemptNotFoundException"))
    assert isinstance(bench.failures.get(timeout=TIMEOUT_S), AttemptSuperseded)


@pytest.mark.parametrize(
    ("job_status", "status"),
    [
        (None, FinalStatus.SUCCEEDED),
        (JobStatus.FINISHED, FinalStatus.SUCCEEDED),
        (JobStatus.FAILED, FinalStatus.FAILED),
        (JobStatus.CANCELED, FinalStatus.KILLED),
        (JobStatus.SUSPENDED, FinalStatus.KILLED),
    ],
)
def test_end_of_cluster_unregisters_and_deletes_staging_directory(
    bench: Bench, job_status: JobStatus | None, status: FinalStatus
) -> None:
    end = ClusterEnd("no job is left", 7, job_status)
    wait_until(lambda: bench.containers.leave(end))
    assert bench.master.next() == ("unregister", status, "no job is left", "http://am:8081")
    assert bench.master.next() == ("delete", "hdfs://x/.tailrace/app")
    assert bench.reports.get(timeout=TIMEOUT_S) == resource_manager.ApplicationMasterUnregistered(
        final_status=status.value,
        diagnostics="no job is left",
        staging_directory="hdfs://x/.tailrace/app",
    )


def test_process_that_never_led_has_nothing_to_leave() -> None:
    end = ClusterEnd("no job is left", 7, application="application_1_0003")
    containers = Bench(leads=False).containers
    assert not containers.owns(end)
    assert containers.leave(end)


def test_leader_of_cluster_that_ends_at_once_registers_before_it_leaves() -> None:
    bench = Bench()
    end = ClusterEnd("its program fails", 7, JobStatus.FAILED)
    wait_until(lambda: bench.containers.leave(end))
    assert [bench.master.next()[0] for _ in range(3)] == ["register", "unregister", "delete"]
    bench.containers.close()


def test_attempt_that_never_led_leaves_application_in_which_cluster_has_ended() -> None:
    bench = Bench(leads=False)
    end = ClusterEnd("no job is left", 7, application=SETTINGS.application_id)
    assert bench.containers.owns(end)
    wait_until(lambda: bench.containers.leave(end))
    assert [bench.master.next()[0] for _ in range(3)] == ["register", "unregister", "delete"]
    bench.containers.close()


@pytest.mark.parametrize(
    "container", ["container_1570379089091_0019_02_000003", "container_e08_1570379089091_0019_02_000003"]
)
def test_container_id_tells_application(container: str) -> None:
    assert application_of(container) == "application_1570379089091_0019"
    assert application_of("") == ""


def test_process_that_cannot_register_ends_whatever_the_error() -> None:
    failures: queue.Queue[Exception] = queue.Queue()

    def connect() -> ScriptedMaster:
        raise FileNotFoundError("no folder for the log")

    containers = YarnContainers(connect, SETTINGS, create_container, failures.put)
    with pytest.raises(FileNotFoundError):
        containers.survivors()
    assert isinstance(failures.get(timeout=TIMEOUT_S), FileNotFoundError)


def test_end_of_process_leaves_application_to_next_attempt(bench: Bench) -> None:
    bench.containers.close()
    assert bench.master.next() == ("close",)


@pytest.mark.parametrize(
    ("status", "meaning"), [(0, ""), (-100, "its node was lost"), (-102, "preempted"), (-104, "process.size")]
)
def test_end_of_container_names_meaning_of_exit_status(status: int, meaning: str) -> None:
    assert meaning in describe_end(FIRST, CompletedContainer("container_1", status, ""))


def test_launch_survives_shell_of_node_manager() -> None:
    configuration = Configuration({"home": "/somewhere"})
    resources = '{"venv": {"uri": "hdfs://x/venv.tar.gz", "size": 3, "timestamp": 4, "type": "ARCHIVE"}}'
    environment = {
        "TAILRACE_YARN_PYTHON": "./venv/bin/python",
        "TAILRACE_YARN_LOCAL_RESOURCES": resources,
        "PATH": 'a"$b',
    }
    launch = create_launch(configuration, environment, "worker-3", 2).launch
    assert launch.command == (
        "./venv/bin/python -P -m tailrace.services.cli taskexecutor --resource-id worker-3 --slots 2 "
        "1> <LOG_DIR>/taskexecutor.out 2> <LOG_DIR>/taskexecutor.err"
    )
    assert launch.environment["TAILRACE_HOME"] == "$PWD"
    assert launch.environment["PATH"] == 'a\\"\\$b'
    assert launch.local_resources == {"venv": LocalResource("hdfs://x/venv.tar.gz", 3, 4, "ARCHIVE")}


def test_container_has_size_of_configuration_and_vcore_for_each_slot() -> None:
    configuration = Configuration(
        {"taskmanager.memory.process.size": "1500m", "taskmanager.numberOfTaskSlots": "3"}
    )
    settings = yarn_settings(configuration, {"NM_HOST": "n7"}, "https://0.0.0.0:8081")
    assert create_launch(configuration, {}, "worker-1", 3).capability == Capability(1500, 3)
    assert (settings.host, settings.port, settings.tracking_url) == ("n7", 8081, "https://0.0.0.0:8081")
    assert yarn_settings(configuration, {"NM_HOST": "n7"}, "").tracking_url == ""


def test_worker_with_larger_slots_gets_larger_container_with_priority_of_its_own(bench: Bench) -> None:
    bench.starts("worker-1")
    bench.threads.submit(bench.driver.start, "worker-2", 1, LARGE)
    assert bench.master.next() == ("request", 2)
    bench.starts("worker-3")
    assert bench.master.capabilities == {
        1: Capability(1024, 2, 1),
        2: Capability(2048, 3, 2),
        3: Capability(1024, 2, 1),
    }


def test_container_of_profile_offers_it_and_grows_by_it() -> None:
    configuration = Configuration({"taskmanager.memory.process.size": "1500m", "taskmanager.cpu.cores": "2"})
    container = create_launch(configuration, {}, "worker-1", 1, LARGE)
    assert container.capability == Capability(1500 + (2048 - 640) + 512, 3)
    told = {
        name.removeprefix("TAILRACE_TASKMANAGER_"): value
        for name, value in container.launch.environment.items()
    }
    assert told["MEMORY_TASK_HEAP_SIZE"] == "2 gb"
    assert told["MEMORY_MANAGED_SIZE"] == "512 mb"
    assert float(told["CPU_CORES"]) == 3.0
    small = msgspec.structs.replace(LARGE, heap_memory_mb=1, managed_memory_mb=0, cpu_cores=0.5)
    assert create_launch(configuration, {}, "worker-1", 1, small).capability == Capability(1500, 2)


def test_container_that_yarn_never_allocates_is_refused_before_the_request(bench: Bench) -> None:
    huge = msgspec.structs.replace(LARGE, heap_memory_mb=5000)
    with pytest.raises(WorkerNotStarted, match="at most 4096 MiB and 8 vcores: ask for smaller slots"):
        bench.driver.start("worker-1", 1, huge)
    assert bench.master.calls.empty()


def test_refused_request_ends_waiting_starts_and_heartbeats_continue(bench: Bench) -> None:
    started = bench.starts("worker-1")
    bench.master.answers.put(RequestRefused("InvalidResourceRequestException: too much"))
    with pytest.raises(WorkerNotStarted, match="InvalidResourceRequestException: too much"):
        started.result(TIMEOUT_S)
    assert not bench.master.requests
    bench.runs(SECOND)


def test_lost_node_is_reported_with_its_workers_also_after_their_ends(bench: Bench) -> None:
    bench.runs(FIRST)
    other = NodeUpdate("n9:45", "LOST", "")
    lost = NodeUpdate("n1:45", "LOST", "no heartbeat")
    bench.master.answers.put(Allocation(completed=(CompletedContainer("container_1", -100, ""),)))
    assert isinstance(bench.reports.get(timeout=TIMEOUT_S), resource_manager.ContainerCompleted)
    bench.master.answers.put(Allocation(nodes=(other, lost)))
    assert bench.reports.get(timeout=TIMEOUT_S) == resource_manager.NodeStateChanged(
        node="n1:45", state="LOST", health_report="no heartbeat", resource_ids=("worker-1",)
    )
    bench.master.answers.put(Allocation(nodes=(NodeUpdate("n1:45", "RUNNING", ""),)))
    assert bench.reports.get(timeout=TIMEOUT_S) == resource_manager.NodeStateChanged(
        node="n1:45", state="RUNNING", health_report="", resource_ids=()
    )


def test_announced_preemption_is_reported_once(bench: Bench) -> None:
    bench.runs(FIRST)
    claim = Allocation(preemptions=(Preemption("container_1", True), Preemption("container_8", True)))
    bench.master.answers.put(claim)
    bench.master.answers.put(claim)
    bench.master.answers.put(Allocation(completed=(CompletedContainer("container_1", -102, "queue b"),)))
    assert bench.reports.get(timeout=TIMEOUT_S) == resource_manager.PreemptionAnnounced(
        resource_id="worker-1", container_id="container_1", is_strict=True
    )
    assert isinstance(bench.reports.get(timeout=TIMEOUT_S), resource_manager.ContainerCompleted)
