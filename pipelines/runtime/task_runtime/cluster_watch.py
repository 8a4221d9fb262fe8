"""Looks at the executors of a Spark cluster: whether they can run queries, and whether some are left.

Spark replaces a lost executor. It does not replace an application that its Master has forgotten or ended, which
happens if the Master is started again without its state. Then a session is started in the place of the old one, as
another application. Until it is there, queries wait, and StreamTasks read themselves.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ....infra import threads
from ..spark.cluster import SparkClusterAddress, SparkClusterError, explain
from .spark_process import SparkProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

LOOK_INTERVAL_S: Final = 0.5
FORGOTTEN_S: Final = 60.0
"""Without executors for this time, after it had some, an application counts as forgotten by a Master that answers."""
PROBE_INTERVAL_S: Final = 3.0
"""How often a Master is tried while there is no executor."""
RETRY_S: Final = 10.0


class ClusterWatch:
    """Watches from `start` until `close`, in a thread of its own."""

    def __init__(
        self,
        spark: SparkProcess,
        cluster: SparkClusterAddress,
        *,
        suspended: Callable[[], None],
        started: Callable[[SparkSession], None],
        failed: Callable[[SparkClusterError], None],
    ) -> None:
        """`suspended`: no query can run until `started` gives the next session. `failed`: none ever will."""
        self._spark = spark
        self._cluster = cluster
        self._suspended, self._started, self._failed = suspended, started, failed
        self._closed = threading.Event()
        self._executors = 0
        self._lost_at: float | None = None
        self._is_master_gone = False
        self._probes_at = 0.0
        self._is_checked = False

    def start(self) -> None:
        """Begins to watch the session of the process."""
        threads.Thread(target=self._watch, name="spark cluster").start()

    def close(self) -> None:
        """Ends the watch; returns at once."""
        self._closed.set()

    def _watch(self) -> None:
        try:
            while not self._closed.wait(LOOK_INTERVAL_S):
                self._look()
        except SparkClusterError as error:
            self._failed(error)
        except Exception:
            # The JVM may end at any time, which has a watch of its own.
            if not self._closed.is_set():
                log.exception("the executors of %s are not watched any more", self._cluster.master)

    def _look(self) -> None:
        executors = self._spark.executors()
        if executors is None:
            if not self._is_checked:
                raise SparkClusterError(
                    f"{self._cluster.master} has ended the application of this TaskExecutor before an executor ran: "
                    "look into the executors' logs. Usual reasons are another release of Spark there, and no Java"
                )
            self._replace(f"{self._cluster.master} has ended the application of this TaskExecutor")
            return
        if executors != self._executors:
            self._on_change(executors)
        if executors and not self._is_checked:
            self._check()
        if not executors and self._is_forgotten():
            self._replace(f"{self._cluster.master} gives no executor to this TaskExecutor any more")

    def _is_forgotten(self) -> bool:
        now = time.monotonic()
        if now < self._probes_at:
            return False
        self._probes_at = now + PROBE_INTERVAL_S
        if not self._cluster.is_reachable():
            if not self._is_master_gone:
                log.warning(
                    "no Master answers at %s: queries wait until one is back, and StreamTasks read themselves",
                    self._cluster.master,
                )
            self._is_master_gone = True
            return False
        has_waited = self._lost_at is not None and now >= self._lost_at + FORGOTTEN_S
        return self._is_master_gone or has_waited

    def _on_change(self, executors: int) -> None:
        before, self._executors = self._executors, executors
        if executors:
            log.info("%s has %d executors for this TaskExecutor", self._cluster.master, executors)
            self._lost_at = None
        elif before:
            log.warning(
                "%s has no executor for this TaskExecutor any more: queries wait for one, and StreamTasks read "
                "themselves",
                self._cluster.master,
            )
            self._lost_at = time.monotonic()

    def _check(self) -> None:
        """Raises SparkClusterError if executors cannot run our Python."""
        try:
            self._spark.run_on_executors(self._executors)
        except Exception as error:
            reason = explain(self._cluster, str(error))
            if reason is not None:
                raise SparkClusterError(reason) from None
            return  # such as an executor that has just been lost
        self._is_checked = True

    def _replace(self, reason: str) -> None:
        """Starts another session, as soon as the cluster accepts one."""
        log.warning("%s: another one is started", reason)
        self._suspended()
        self._executors, self._lost_at, self._is_master_gone = 0, None, False
        has_warned = False
        while not self._closed.is_set():
            try:
                session = self._spark.restart()
            except Exception as error:
                if self._closed.is_set():
                    return
                if not has_warned:
                    why = str(error).partition("\n")[0] or type(error).__name__
                    log.warning("Spark does not start again; retries every %.0f s: %s", RETRY_S, why)
                has_warned = True
                self._closed.wait(RETRY_S)
            else:
                log.info("%s has accepted another application of this TaskExecutor", self._cluster.master)
                self._started(session)
                return
