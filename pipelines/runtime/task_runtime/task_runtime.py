"""The runtime of a TaskExecutor: deploys and cancels subtasks, and reports their states.

One thread, the loop (event_loop.py), owns all state; execution_manager.py has what runs there. Other threads post to
it, and blocking calls (Spark) run in threads that post their result. An unhandled error of the loop ends the process:
if nobody reported the end of an attempt, its job would wait for ever.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ....infra import threads
from ....infra.kafka_connection import KafkaConnection
from ..common.deployment import (
    CheckpointResponder,
    CheckpointTrigger,
    ExecutionReporter,
    VertexDeployment,
)
from ..common.failures import describe_failure
from ..common.protocol import (
    AbortCheckpoint,
    ConfirmCheckpoint,
    SampleStacks,
    TriggerCheckpoint,
)
from ..common.task_figures import RuntimeFigures, SourceFigures, TaskStacks, VertexName
from ..spark.cluster import SparkClusterAddress, SparkClusterError
from .cluster_watch import ClusterWatch
from .execution_manager import ExecutionManager
from .runtime_state import RunningExecution
from .spark_file_server import SparkFileServer
from .spark_process import SparkProcess
from .worker_gateway import WorkerGateway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

DEFAULT_HEAP_MIB: Final = 640


class TaskRuntime:
    """The runtime; deployment.py has the types of its input and of its reports. All methods may be called from any
    thread."""

    def __init__(
        self,
        *,
        kafka: KafkaConnection,
        scratch: Path,
        slots: int,
        report: ExecutionReporter,
        report_checkpoint: CheckpointResponder | None = None,
        jars: Sequence[Path] | None = None,
        heap_mib: int = DEFAULT_HEAP_MIB,
        on_failure: Callable[[Exception], None] | None = None,
        heartbeat_timeout_s: float = 50.0,
        managed_memory: int = 0,
        starts_spark_on_demand: bool = False,
        spark_cluster: SparkClusterAddress | None = None,
        has_spark_ui: bool = False,
    ) -> None:
        """`report_checkpoint` is needed if checkpoints are triggered. `on_failure` is called once, from another
        thread, with the reason why no attempt can run here any more. `heartbeat_timeout_s`: within this time, a
        StreamTask process that hangs is killed and its attempt fails. `managed_memory`: in bytes, for all slots.
        `starts_spark_on_demand`: Spark starts with the first query. `spark_cluster`: whose executors run the tasks of
        queries; None: this machine. `has_spark_ui`: whether Spark serves its user interface."""
        self._kafka = kafka
        self._scratch = scratch
        self._on_failure = on_failure or _ignore
        # Not in the scratch directory: the path of a Unix socket has at most about a hundred characters.
        self._sockets = Path(tempfile.mkdtemp(prefix="tailrace-"))
        self._gateway = (
            None if spark_cluster is None else WorkerGateway(spark_cluster.driver_host, self._sockets)
        )
        self._executions = ExecutionManager(
            kafka,
            scratch,
            self._sockets,
            slots,
            report,
            report_checkpoint,
            self._on_failure,
            heartbeat_timeout_s,
            managed_memory,
            None if self._gateway is None else self._gateway.address,
        )
        self._loop = self._executions.loop
        self._queries = self._executions.queries
        self._spark = SparkProcess(scratch, jars, heap_mib, spark_cluster, has_spark_ui)
        self._starts_spark_on_demand = starts_spark_on_demand
        self._spark_files = SparkFileServer(
            self._sockets,
            self._queries.await_spark,
            None if self._gateway is None else self._gateway.address,
        )
        self._cluster_watch = (
            None
            if spark_cluster is None
            else ClusterWatch(
                self._spark,
                spark_cluster,
                suspended=self._queries.on_spark_suspended,
                started=self._queries.on_spark_started,
                failed=self._on_cluster_failed,
            )
        )
        self._executions.start()

    # Public methods.

    def start(self) -> None:
        """Starts Spark, at once or on demand; raises on failure. If it starts at once, goes on warming it while nothing
        is deployed: tasks run without a query."""
        if self._starts_spark_on_demand:
            self._spark.start_on_demand(
                self._queries.wait_until_spark_is_needed, self._start_spark, self._on_failure
            )
            return
        session = self._start_spark()
        if self._gateway is not None:
            return  # the queries of a warm-up have no gateway
        from ..spark.warm_up import warm_up

        arguments = (session, self._kafka, self._scratch, self._has_nothing_to_do)
        threads.Thread(target=warm_up, args=arguments, name="warm-up").start()

    def _start_spark(self) -> SparkSession:
        try:
            session = self._spark.start()
        except Exception as error:
            self._queries.on_spark_failed(describe_failure(error))
            raise
        self._queries.on_spark_started(session)
        self._spark.watch(lambda died: self._loop.post(lambda: self._executions.fail(died)))
        if self._cluster_watch is not None:
            self._cluster_watch.start()
        return session

    def _on_cluster_failed(self, error: SparkClusterError) -> None:
        self._queries.on_spark_failed(str(error))
        self._on_failure(error)

    def jvm_heap_bytes(self) -> int:
        """The largest heap of Spark's JVM."""
        return self._spark.heap_bytes

    def _has_nothing_to_do(self) -> bool:
        return not self._loop.is_stopped and not self._executions.deployments

    def process_ids(self) -> Mapping[str, int]:
        """Returns execution_attempt_id -> the process of its StreamTask, for attempts that have restored their
        state."""
        known = list(self._executions.by_id.values())
        return {each.id: each.process_id for each in known if each.process_id is not None}

    def attempts(self) -> Mapping[str, Mapping[str, float]]:
        """Returns execution_attempt_id -> all counts, for attempts that were deployed and not yet reported as ended."""
        return self._counted(lambda execution: execution.counts)

    def accumulators(self) -> Mapping[str, Mapping[str, float]]:
        """Returns like `attempts`, but only the committed counts of functions, in all attempts of the subtask."""
        return self._counted(lambda execution: execution.accumulators)

    def figures(self) -> RuntimeFigures:
        """Returns the last figures of the attempts that have not ended."""
        return RuntimeFigures(
            tasks=[each.figures for each in list(self._executions.by_id.values()) if each.end is None],
            sources=[
                SourceFigures(each.vertex_name, each.pending_records, len(each.places))
                for each in list(self._executions.deployments.values())
                if each.pending_records is not None and each.live
            ],
            jvm_process_id=self._spark.process_id,
            jvm_heap_bytes=self._spark.heap_bytes,
        )

    def sample_stacks(
        self, wanted: Callable[[VertexName, int], bool], count: int, interval_s: float
    ) -> list[TaskStacks]:
        """Returns samples of what StreamTasks do, for subtasks of which `wanted` (vertex, subtask index) is true. Waits
        until `count` samples are taken, with `interval_s` seconds between them."""
        chosen = {
            each.id: each
            for each in list(self._executions.by_id.values())
            if each.end is None
            and each.process_id is not None
            and wanted(each.deployment.vertex_name, each.subtask.subtask_index)
        }

        def send(command: SampleStacks) -> None:
            self._loop.post(lambda: self._executions.tell(list(chosen), command))

        found = self._executions.stacks.sample(list(chosen), SampleStacks(0, count, interval_s), send)
        return [
            TaskStacks(chosen[each].deployment.vertex_name, chosen[each].subtask.subtask_index, stacks)
            for each, stacks in found.items()
        ]

    def _counted(
        self, of: Callable[[RunningExecution], Mapping[str, float]]
    ) -> Mapping[str, Mapping[str, float]]:
        # In this order: an attempt that is being started is in both, not in neither.
        counted: dict[str, Mapping[str, float]] = {each: {} for each in list(self._executions.deploying)}
        return counted | {execution.id: of(execution) for execution in list(self._executions.by_id.values())}

    def deploy(self, deployment: VertexDeployment) -> None:
        """Starts the subtasks; returns at once."""
        for subtask in deployment.subtasks:
            self._executions.deploying[subtask.execution_attempt_id] = None
        self._loop.post(lambda: self._executions.deploy(deployment))

    def cancel(self, execution_attempt_id: str) -> None:
        """Ends an attempt; returns at once. An unknown attempt is reported as CANCELED."""
        self._loop.post(lambda: self._executions.cancel(execution_attempt_id))

    def trigger_checkpoint(self, execution_attempt_ids: Sequence[str], checkpoint: CheckpointTrigger) -> None:
        """Begins a checkpoint in these attempts; returns at once. Ended attempts take no part in it."""
        self._loop.post(lambda: self._executions.tell(execution_attempt_ids, TriggerCheckpoint(checkpoint)))

    def confirm_checkpoint(self, execution_attempt_ids: Sequence[str], checkpoint_id: int) -> None:
        """Reports to these attempts that the checkpoint is complete; returns at once."""
        self._loop.post(
            lambda: self._executions.tell(execution_attempt_ids, ConfirmCheckpoint(checkpoint_id))
        )

    def abort_checkpoint(self, execution_attempt_ids: Sequence[str], checkpoint_id: int) -> None:
        """Reports to these attempts that the checkpoint will not complete; returns at once."""
        self._loop.post(lambda: self._executions.tell(execution_attempt_ids, AbortCheckpoint(checkpoint_id)))

    def close(self) -> None:
        """Ends everything that runs, unreported, then Spark. Safe to call twice."""
        if self._loop.is_stopped:
            return
        self._loop.post(self._shut_down)
        self._loop.join(15)
        # The loop has done it, unless it has ended by an error or hangs.
        self._shut_down()
        self._queries.on_closed()
        if self._cluster_watch is not None:
            self._cluster_watch.close()
        self._spark.join_start()
        for deployment in self._executions.deployments.values():
            self._queries.close(deployment)
        self._spark.close(stop_session=self._executions.broken is None)
        self._executions.close()
        self._spark_files.close()
        if self._gateway is not None:
            self._gateway.close()
        shutil.rmtree(self._sockets, ignore_errors=True)

    def _shut_down(self) -> None:
        self._spark.expect_end()
        self._executions.shut_down()


def _ignore(error: Exception) -> None:
    pass
