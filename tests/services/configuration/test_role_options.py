"""Role options from the maps in the log: defined for every map, and equal to the options of the process that wrote
it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.infra.config.options import Scope
from tailrace.pipelines.graph import job_options
from tailrace.pipelines.graph.job_options import ScheduleMode
from tailrace.pipelines.runtime.common.settings import TaskSettings
from tailrace.schemas.resource_manager import RegisterTaskExecutor
from tailrace.services.configuration import Configuration, options
from tailrace.services.configuration.options.resource_manager import ResourceManagerMode
from tailrace.services.configuration.resources import slot_profile
from tailrace.services.configuration.role_options import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    JobOptions,
    NoRestart,
    ResourceManagerOptions,
    RestartStrategyOptions,
    TaskExecutorOptions,
    job_configuration,
    restart_strategy,
)
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.task_executor.shell import Runtime as RuntimeProtocol
from tailrace.services.task_executor.shell import TaskExecutorShell

S = 1_000_000
texts = st.text(max_size=20) | st.sampled_from(
    ["0", "1", "-1", "7 s", "70 s", "1 min", "active", "none", "unlimited"]
)
anything = st.dictionaries(st.sampled_from(sorted(options.BY_KEY)) | st.text(max_size=20), texts)
DIRECTORIES = {
    option.key: option for option in (job_options.CHECKPOINTS_DIRECTORY, job_options.SAVEPOINTS_DIRECTORY)
}
"""`auto` in a job's configuration means what the cluster says."""


@given(anything)
def test_any_map_in_log_can_be_folded(configuration: dict[str, str]) -> None:
    manager = ResourceManagerOptions.from_configuration(configuration)
    worker = TaskExecutorOptions.from_configuration(configuration)
    job = JobOptions.from_configuration(configuration)
    assert manager.slots_per_worker >= 1
    assert min(manager.slot_request_timeout, worker.slot_timeout, job.slot_idle_timeout) > 0
    if isinstance(job.restart_strategy, ExponentialDelay):
        assert job.restart_strategy.initial <= job.restart_strategy.longest
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(job), type=JobOptions) == job


@given(anything, anything)
def test_job_options_precede_cluster_options(cluster: dict[str, str], job: dict[str, str]) -> None:
    effective = job_configuration(cluster, job)
    for key, value in effective.items():
        own = key in job_options.BY_KEY and key in job
        if key in DIRECTORIES and key in cluster and DIRECTORIES[key].of(job) is None:
            own = False
        assert value == (job[key] if own else cluster[key])
    assert job_options.BY_KEY.keys() & (cluster.keys() | job.keys()) <= effective.keys()
    assert JobOptions.from_configuration(job_configuration(cluster, {})) == JobOptions.from_configuration(
        cluster
    )
    assert job_configuration(cluster, effective) == effective


def test_defaults_equal_those_of_table() -> None:
    # But for directories, which only a cluster that has a home can name, and for the interval of checkpoints.
    nothing = Configuration()
    assert (
        ResourceManagerOptions.from_configuration(nothing.as_map())
        == ResourceManagerOptions()
        == ResourceManagerOptions.from_configuration({})
    )
    assert TaskExecutorOptions.from_configuration(nothing.as_map(Scope.TASKMANAGER)) == TaskExecutorOptions()
    assert JobOptions.from_configuration({}) == JobOptions()
    of_jobs = JobOptions.from_configuration(job_configuration(nothing.as_map(), {}))
    assert of_jobs.checkpointing.interval == job_options.CHECKPOINT_INTERVAL.default
    homeless = msgspec.structs.replace(
        of_jobs.checkpointing, interval=None, checkpoints_directory="", savepoints_directory=""
    )
    assert msgspec.structs.replace(of_jobs, checkpointing=homeless) == JobOptions()


@given(anything)
def test_tasks_write_changes_to_storage_if_job_takes_checkpoints(
    configuration: dict[str, str],
) -> None:
    possible = {key: text for key, text in configuration.items() if not job_options.faults({key: text})}
    effective = job_configuration({}, possible)
    interval = JobOptions.from_configuration(effective).checkpointing.interval
    assert TaskSettings.from_configuration(effective).periodic_checkpoints is (interval is not None)


@pytest.mark.parametrize("written", [None, "off", "7 s"])
@pytest.mark.parametrize("by_job", [True, False])
def test_job_takes_checkpoints_unless_disabled(written: str | None, by_job: bool) -> None:
    key = job_options.CHECKPOINT_INTERVAL.key
    output = {} if written is None else {key: written}
    cluster = Configuration({} if by_job else output).as_map()
    interval = JobOptions.from_configuration(
        job_configuration(cluster, output if by_job else {})
    ).checkpointing.interval
    assert interval == {None: 180 * S, "off": None, "7 s": 7 * S}[written]


def test_log_without_interval_has_no_periodic_checkpoints() -> None:
    # It is older than the default, and has to be decided again as it was.
    assert JobOptions.from_configuration(job_configuration({}, {})).checkpointing.interval is None


def test_masters_use_options_of_leader() -> None:
    configuration = Configuration(
        {
            "slot.request.timeout": "1 min",
            "slot.request.unfulfillable-timeout": "2 s",
            "resourcemanager.standalone.start-up-time": "0 s",
            "taskmanager.restart-grace": "3 s",
            "resourcemanager.mode": "active",
            "taskmanager.numberOfTaskSlots": "7",
            "slotmanager.number-of-slots.max": "70",
            "resourcemanager.taskmanager-timeout": "4 s",
            "resourcemanager.taskmanager-registration.timeout": "5 s",
            "resourcemanager.shutdown.timeout": "6 s",
            "cluster.evenly-spread-out-slots": "true",
        }
    )
    assert ResourceManagerOptions.from_configuration(configuration.as_map()) == ResourceManagerOptions(
        slot_request_timeout=60 * S,
        unfulfillable_timeout=2 * S,
        start_up_time=0,
        restart_grace=3 * S,
        mode=ResourceManagerMode.ACTIVE,
        slots_per_worker=7,
        max_slots=70,
        taskmanager_timeout=4 * S,
        registration_timeout=5 * S,
        shutdown_timeout=6 * S,
        evenly_spread_out=True,
    )
    job = JobOptions.from_configuration(
        job_configuration(configuration.as_map(), {"execution.schedule-mode": "LAZY_FROM_SOURCES"})
    )
    assert job.schedule_mode is ScheduleMode.LAZY_FROM_SOURCES


@pytest.mark.parametrize(
    ("configuration", "strategy"),
    [
        ({}, ExponentialDelay(S, 60 * S, 1.5, 3600 * S, 0.1, None)),
        ({"type": "off"}, NoRestart()),
        ({"type": "disable"}, NoRestart()),
        ({"type": "none"}, NoRestart()),
        ({"type": "fixed-delay"}, FixedDelay(1, S)),
        (
            {"type": "fixeddelay", "fixed-delay.attempts": "3", "fixed-delay.delay": "10 s"},
            FixedDelay(3, 10 * S),
        ),
        ({"type": "failure-rate"}, FailureRate(1, 60 * S, S)),
        ({"type": "failurerate", "failure-rate.max-failures-per-interval": "9"}, FailureRate(9, 60 * S, S)),
        (
            {"type": "exponential-delay", "exponential-delay.attempts-before-reset-backoff": "4"},
            ExponentialDelay(S, 60 * S, 1.5, 3600 * S, 0.1, 4),
        ),
        ({"type": "no such strategy"}, ExponentialDelay(S, 60 * S, 1.5, 3600 * S, 0.1, None)),
        ({"exponential-delay.max-backoff": "1 ms"}, ExponentialDelay(1000, 1000, 1.5, 3600 * S, 0.1, None)),
    ],
)
def test_restart_strategies_have_names_and_defaults_of_flink(
    configuration: dict[str, str], strategy: RestartStrategyOptions
) -> None:
    assert (
        restart_strategy({f"restart-strategy.{key}": text for key, text in configuration.items()}) == strategy
    )


@given(st.integers(1, 64), st.integers(0, 2**40), st.integers(1, 64), st.integers(1, 16))
def test_slots_never_offer_more_than_total(slots: int, heap: int, cores: int, gpus: int) -> None:
    configuration = Configuration(
        {
            "taskmanager.numberOfTaskSlots": str(slots),
            "taskmanager.memory.managed.size": "1 gb",
            "external-resources": "gpu",
            "external-resource.gpu.amount": str(gpus),
        }
    )
    profile = slot_profile(configuration, cpu_cores=cores, jvm_heap=heap)
    assert profile.heap_memory_mb * slots << 20 <= heap
    assert profile.managed_memory_mb * slots <= 1024
    assert profile.cpu_cores * slots == pytest.approx(cores)
    assert profile.extended_resources["gpu"] * slots == pytest.approx(gpus)
    fixed = configuration.replace(
        {"taskmanager.cpu.cores": "2.5", "taskmanager.memory.task.heap.size": "10 mb"}
    )
    assert slot_profile(fixed, cpu_cores=cores, jvm_heap=heap).heap_memory_mb == 10 // slots
    assert slot_profile(fixed, cpu_cores=cores, jvm_heap=heap).cpu_cores == round(2.5 / slots, 8)


def test_task_executor_registers_with_configured_options() -> None:
    events: list[OutgoingEvent] = []

    class Runtime(RuntimeProtocol):
        def jvm_heap_bytes(self) -> int:
            return 1 << 30

    configuration = Configuration({"taskmanager.numberOfTaskSlots": "4", "taskmanager.slot.timeout": "3 s"})
    shell = TaskExecutorShell(lambda _, owed: events.append(owed), "task_executor/te", "c")
    shell.register(Runtime(), configuration, resource_id="te", process_address="here")  # type: ignore[abstract]
    (registration,) = [owed.body for owed in events]
    assert isinstance(registration, RegisterTaskExecutor)
    assert registration.number_of_slots == 4
    assert registration.default_slot_profile.heap_memory_mb == 256
    assert TaskExecutorOptions.from_configuration(registration.configuration).slot_timeout == 3 * S
