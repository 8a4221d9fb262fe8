"""The JVM of Spark that a TaskRuntime owns: its start, its end, and who is informed if it ends by itself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ....infra import threads
from ..common.failures import RuntimeProcessDied
from ..spark.cluster import SparkClusterAddress, do_nothing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_OUT_OF_MEMORY: Final = 52
"""The exit status that Spark gives to a JVM without memory (SparkExitCode.OOM)."""


class SparkProcess:
    """A SparkSession and the JVM behind it."""

    def __init__(
        self,
        scratch: Path,
        jars: Sequence[Path] | None,
        heap_mib: int,
        cluster: SparkClusterAddress | None = None,
        has_ui: bool = False,
    ) -> None:
        """`jars`: None for those of the project. `cluster`, `has_ui`: see start_session."""
        self._cluster = cluster
        self._has_ui = has_ui
        self._scratch = scratch
        self._jars = jars
        self._heap_mib = heap_mib
        self._session: SparkSession | None = None
        self._closed = False
        self._start_on_demand: threading.Thread | None = None

    @property
    def session(self) -> SparkSession | None:
        """The session, once it has started."""
        return self._session

    @property
    def heap_bytes(self) -> int:
        """The largest heap of the JVM."""
        return self._heap_mib << 20

    @property
    def process_id(self) -> int | None:
        """The JVM's process, once it runs."""
        gateway = self._gateway
        return None if gateway is None else gateway.proc.pid

    def start(self) -> SparkSession:
        """Starts Spark, and returns its session. Raises RuntimeProcessDied if its JVM ends meanwhile, else what Spark
        raises."""
        from py4j.protocol import Py4JNetworkError
        from pyspark.errors import PySparkRuntimeError

        from ....infra.cds_archives import read_archive_options, spark_archive
        from ....infra.jars import spark_jars
        from ....infra.prerequisites import find_java
        from ..spark.session import start_session

        jars = spark_jars() if self._jars is None else self._jars
        archived = read_archive_options(spark_archive(find_java()))
        try:
            self._session = start_session(
                self._scratch,
                jars,
                self._heap_mib,
                jvm_options=archived,
                cluster=self._cluster,
                has_ui=self._has_ui,
            )
        except (Py4JNetworkError, PySparkRuntimeError) as error:
            has_ended = isinstance(error, Py4JNetworkError) or error.getCondition() == "JAVA_GATEWAY_EXITED"
            if not has_ended:
                raise
            hint = " before it was ready (what it printed is in the log)"
            raise RuntimeProcessDied("Spark's JVM", None, None, hint) from error
        if self._has_ui:
            log.info("Spark's user interface is at %s", self._session.sparkContext.uiWebUrl)
        return self._session

    def restart(self) -> SparkSession:
        """Replaces the session by another one in the same JVM. Raises what Spark raises, and SparkClusterError."""
        if self._cluster is not None:
            self._cluster.check()
        if self._session is not None:
            self._session.stop()
        return self.start()

    def executors(self) -> int | None:
        """Returns how many executors the session has; None if its cluster has ended it."""
        assert self._session is not None
        context: Any = self._session.sparkContext._jsc
        if context.sc().isStopped():
            return None
        # The driver is one of them.
        return len(context.statusTracker().getExecutorInfos()) - 1

    def run_on_executors(self, executors: int) -> None:
        """Runs a Python worker as those of queries on so many executors. Raises Spark's errors."""
        assert self._session is not None
        self._session.sparkContext.parallelize(range(executors), executors).foreach(do_nothing)

    def start_on_demand(
        self, wait: Callable[[], None], start: Callable[[], object], on_failure: Callable[[Exception], None]
    ) -> None:
        """Calls `start`, in a thread, after `wait` has returned, unless `expect_end` was called by then. Its error goes
        to `on_failure`."""

        def run() -> None:
            wait()
            if self._closed:
                return
            try:
                start()
            except Exception as error:
                on_failure(error)

        self._start_on_demand = threads.Thread(target=run, name="spark start")
        self._start_on_demand.start()

    def join_start(self) -> None:
        """Waits for the end of a start on demand."""
        if self._start_on_demand is not None:
            self._start_on_demand.join()

    def watch(self, on_end: Callable[[RuntimeProcessDied], None]) -> None:
        """Calls `on_end`, from another thread, if the JVM ends before `close`."""
        threads.Thread(target=self._wait, args=(self._gateway, on_end), name="jvm").start()

    def _wait(self, gateway: Any, on_end: Callable[[RuntimeProcessDied], None]) -> None:
        if gateway is None:
            return
        status = gateway.proc.wait()
        if self._closed:
            return
        hint = (
            f" (out of memory: it has {self._heap_mib} MiB; if a topic has very large records, raise"
            " taskmanager.memory.task.heap.size)"
        )
        on_end(
            RuntimeProcessDied(
                "Spark's JVM", gateway.proc.pid, status, hint if status == _OUT_OF_MEMORY else ""
            )
        )

    def expect_end(self) -> None:
        """Declares the end of the JVM as intended: nobody is informed of it."""
        self._closed = True

    def close(self, *, stop_session: bool) -> None:
        """Ends Spark and its JVM. `stop_session`: False if the JVM may be gone."""
        self._closed = True
        gateway = self._gateway
        if self._session is not None and stop_session:
            self._session.stop()
        elif self._session is not None:
            _forget_session()
        if gateway is not None:
            _end_jvm(gateway)

    @property
    def _gateway(self) -> Any:
        return None if self._session is None else self._session.sparkContext._gateway


def _forget_session() -> None:
    """Removes the session whose JVM may be gone: PySpark would return it to the next one who starts a session."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkSession._instantiatedSession = SparkContext._active_spark_context = None


def _end_jvm(gateway: Any) -> None:
    """Closes the gateway's input, which ends the JVM, and waits for that. A later session starts a JVM of its own."""
    from pyspark import SparkContext

    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    process = gateway.proc
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(10)
    except Exception:
        process.kill()
        process.wait()
