"""The taskexecutor process: one TaskExecutor, its SparkSession and its tasks (Flink's TaskManagerRunner).

It may start before the jobmanager, and before Kafka: its events wait in the log until a master answers. At SIGTERM it
leaves: it informs the ResourceManager first, then ends its tasks, which report nothing more. With
`taskmanager.leave-on-stop: false` it informs nobody, because it is expected back under its name.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

from ...infra import threads
from ...infra.closing import Closeable
from ...infra.logging_setup import logger
from ...pipelines.runtime.formats.schema_registry import CREDENTIALS_FILE_VARIABLE
from ...pipelines.runtime.spark.cluster import SparkClusterAddress
from ...pipelines.runtime.task_runtime.task_runtime import DEFAULT_HEAP_MIB, TaskRuntime
from ...schemas import resource_manager
from ..configuration import Configuration
from ..configuration.options.cluster import SCHEMA_REGISTRY_CREDENTIALS_FILE
from ..configuration.options.heartbeat import HEARTBEAT_TIMEOUT
from ..configuration.options.kafka import KafkaUser
from ..configuration.options.spark import (
    SPARK_CORES,
    SPARK_DRIVER_HOST,
    SPARK_EXECUTORS,
    SPARK_MASTER,
    SPARK_OWN_SETTINGS,
    SPARK_PYTHON_ARCHIVE,
    SPARK_PYTHON_EXECUTABLE,
    SPARK_UI,
)
from ..configuration.options.task_executor import LEAVE_ON_STOP, MANAGED_MEMORY, SPARK_ON_DEMAND, TASK_HEAP
from ..core.replica import Replica
from ..core.role import RESOURCE_MANAGER, TASK_EXECUTOR, OutgoingEvent, address
from ..diagnostics.stacks import STACKS, Stack, serve_stacks
from ..diagnostics.threads import THREADS, ThreadInfo, serve_threads
from ..host.host import Host
from ..log.factory import open_event_log
from ..metrics.samples import Sample
from ..roles import task_executor_roles
from ..task_executor.shell import TaskExecutorShell
from ..task_executor.state import TaskExecutorState
from . import heartbeats, metrics
from .blobs import create_task_executor_blobs
from .clock import ProcessClock
from .diagnostics import serve_diagnostics
from .index_validation import index_errors
from .process_lifecycle import (
    END_TIMEOUT_S,
    KAFKA_TIMEOUT_S,
    create_topic_watch,
    exit_within,
    new_session,
    process_address,
    raise_thread_failure,
    wait_for_topics,
)
from .relay import with_relay
from .snapshots import restore_task_executor

_log = logger(__name__)
_CONTAINER_ID_VARIABLE = "CONTAINER_ID"
"""In containers of YARN."""
_SAMPLES = 50
_SAMPLE_INTERVAL_S = 0.02
"""Of a flame graph."""
_SPARK_TIMEOUT_S = 40.0
"""The additional time to wait for a Spark that is still starting."""


def run(configuration: Configuration, resource_id: str, scratch: Path, stop: threading.Event) -> None:
    """Runs until `stop` is set or the cluster has terminated. Raises the errors of Host.run."""
    configuration = configuration.as_user(KafkaUser.TASKMANAGER)
    cluster = configuration.cluster_id
    own_address = address(TASK_EXECUTOR, resource_id)
    log = open_event_log(configuration, timeout_s=KAFKA_TIMEOUT_S, appends=True)
    log.codec.register_all()
    replica = Replica(
        task_executor_roles,
        only=lambda role_address: role_address == own_address,
        index_errors=index_errors(configuration),
    )
    blobs = create_task_executor_blobs(configuration, replica, resource_id, scratch)
    clock = ProcessClock(configuration)
    host = Host(
        with_relay(configuration, log, replica),
        replica,
        cluster=cluster,
        leads=(own_address,),
        process_address=process_address(),
        session=new_session(),
        clock=clock,
        concerns=(own_address,),
    )
    shell = TaskExecutorShell(
        host.emit, own_address, cluster, lambda state: own_heartbeats.follow(state), blobs
    )
    beating, own_heartbeats = heartbeats.create_task_executor_heartbeats(
        configuration, host, own_address, resource_id, shell.running
    )
    # Set it before Spark starts: its workers and the StreamTasks inherit it.
    os.environ[CREDENTIALS_FILE_VARIABLE] = configuration.get(SCHEMA_REGISTRY_CREDENTIALS_FILE) or ""
    runtime = TaskRuntime(
        kafka=configuration.as_user(KafkaUser.TASKS).kafka,
        scratch=scratch,
        slots=configuration.task_slots,
        report=shell.reported,
        report_checkpoint=shell,
        on_failure=host.fail,
        heap_mib=jvm_heap_mib(configuration),
        heartbeat_timeout_s=configuration.get(HEARTBEAT_TIMEOUT) / 1e6,
        managed_memory=configuration.get(MANAGED_MEMORY),
        starts_spark_on_demand=configuration.get(SPARK_ON_DEMAND),
        spark_cluster=spark_cluster(configuration),
        has_spark_ui=configuration.get(SPARK_UI),
    )

    def start_runtime() -> None:
        try:
            runtime.start()
            while not host.leading.wait(0.1):
                if stop.is_set():
                    return
            claim = replica.leadership.leader(own_address)
            shell.register(
                runtime,
                configuration,
                resource_id=resource_id,
                process_address=process_address(),
                diagnostics_address="" if diagnostics is None else diagnostics.address,
                container_id=os.environ.get(_CONTAINER_ID_VARIABLE, ""),
                cause=None if claim is None else claim.offset,
            )
            _log.info("taskexecutor registers", resource_id=resource_id, slots=configuration.task_slots)
        except Exception as error:
            host.fail(error)

    def collect() -> Iterable[Sample]:
        return metrics.collect_task_executor(
            configuration, host, own_address, resource_id, runtime.figures, log
        )

    served_metrics: Closeable | None = None
    diagnostics = serve_diagnostics(
        configuration,
        collect,
        {
            STACKS: serve_stacks(lambda job, vertex, subtask: sample_vertex(runtime, job, vertex, subtask)),
            THREADS: serve_threads(lambda: describe_tasks(runtime)),
        },
    )
    topics = create_topic_watch(configuration, host)
    starting = threads.Thread(target=start_runtime, name="runtime start")
    with raise_thread_failure(host):
        starting.start()
        _log.info("taskexecutor starts", cluster=cluster, resource_id=resource_id)
        try:
            served_metrics = metrics.serve_prometheus(configuration, collect, host)
            wait_for_topics(configuration, stop, others_create=True)
            if stop.is_set():
                return
            clock.start(stop)
            restore_task_executor(configuration, replica, log)
            beating.start()
            topics.start()
            host.run(stop, {TASK_EXECUTOR: shell}, finished=lambda replica: _has_left(replica, own_address))
            if stop.is_set() and shell.registered and configuration.get(LEAVE_ON_STOP):
                reason = f"TaskExecutor {resource_id} was asked to stop"
                goodbye = resource_manager.DisconnectTaskManager(resource_id=resource_id, reason=reason)
                host.emit(own_address, OutgoingEvent(RESOURCE_MANAGER, goodbye, None))
            _log.info("taskexecutor ends", cluster=cluster, resource_id=resource_id)
        finally:
            with exit_within(END_TIMEOUT_S + _SPARK_TIMEOUT_S, sys.exc_info()[1]):
                for server in (served_metrics, diagnostics):
                    if server is not None:
                        server.close()
                beating.close()
                clock.close()
                topics.close()
                # Whatever ended this process: release the threads that wait for it to lead.
                stop.set()
                starting.join()
                shell.close()
                runtime.close()
                host.close()
                log.close()


def sample_vertex(runtime: TaskRuntime, job_id: str, vertex_id: str, subtask: int | None) -> list[Stack]:
    """Returns samples of the subtasks of a vertex that run here, or of one of them. It takes a second."""
    found = runtime.sample_stacks(
        lambda vertex, index: (
            (vertex.job_id, vertex.vertex_id) == (job_id, vertex_id) and subtask in (None, index)
        ),
        _SAMPLES,
        _SAMPLE_INTERVAL_S,
    )
    return [
        Stack(task.subtask_index, each.calls, each.is_on_cpu, each.count)
        for task in found
        for each in task.stacks
    ]


def describe_tasks(runtime: TaskRuntime) -> list[ThreadInfo]:
    """Returns what the task threads of all StreamTasks do now."""
    return [
        ThreadInfo.of(f"StreamTask {task.vertex.vertex_name} ({task.subtask_index + 1})", each.calls)
        for task in runtime.sample_stacks(lambda _vertex, _index: True, 1, 0.0)
        for each in task.stacks
    ]


def _has_left(replica: Replica, own_address: str) -> bool:
    state = replica.states.get(own_address)
    return isinstance(state, TaskExecutorState) and state.left


def spark_cluster(configuration: Configuration) -> SparkClusterAddress | None:
    """Returns the cluster that runs the tasks of queries; None: this process's own JVM does."""
    master = configuration.get(SPARK_MASTER)
    if master == "local":
        return None
    executors = configuration.get(SPARK_EXECUTORS)
    if executors is None and not master.startswith("spark://"):
        executors = configuration.task_slots
    own = configuration.get(SPARK_OWN_SETTINGS)
    pairs = (part.partition("=") for part in own.split(";") if part)
    return SparkClusterAddress(
        master,
        configuration.get(SPARK_DRIVER_HOST),
        configuration.get(SPARK_CORES),
        executors,
        configuration.get(SPARK_PYTHON_EXECUTABLE),
        configuration.get(SPARK_PYTHON_ARCHIVE),
        {key.strip(): value.strip() for key, _, value in pairs},
    )


def jvm_heap_mib(configuration: Configuration) -> int:
    """Returns the heap of Spark's JVM: the heap that the TaskExecutor offers to tasks, and at least the minimum of
    Spark."""
    offered = configuration.get(TASK_HEAP)
    return max(DEFAULT_HEAP_MIB, 0 if offered is None else offered >> 20)
