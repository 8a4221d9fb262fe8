"""Starts and stops the queries of a TaskExecutor. Both block, so each runs in a thread that posts its result."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ....infra import threads
from ....infra.kafka_connection import KafkaConnection
from ..common.failures import TaskError, describe_failure
from .cluster import send_files
from .message_size import largest_message_bytes
from .partition_forwarder import PartitionForwarder
from .query import Begin, QueryMode, RunningQuery, start_query
from .session import BulkSessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


class QueryRun:
    """One query of a deployment. A deployment may have several, one after another."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.awaited = 0
        """The number of WorkerHellos of its tasks that have not arrived."""
        self.query: RunningQuery | None = None
        self.stopping: threading.Thread | None = None
        self.mode = QueryMode.REAL_TIME
        self.connected_at: float | None = None
        """When its tasks ran, of the monotonic clock."""
        self.has_failed = False
        self.predecessor: QueryRun | None = None
        """The previous query, which may still be stopping."""

    @property
    def running(self) -> RunningQuery | None:
        """The query, if it has started and is not being stopped."""
        return self.query if self.stopping is None else None


class QueryRunner:
    """Starts and stops queries. A start waits until `ready` or `failed` is called. `post` passes results to the
    event loop."""

    def __init__(
        self, kafka: KafkaConnection, scratch: Path, post: Callable[[Callable[[], None]], None]
    ) -> None:
        self._kafka = kafka
        self._scratch = scratch
        self._post = post
        self._spark: SparkSession | None = None
        self._bulk: BulkSessions | None = None
        self._failure: str | None = None
        self._settled = threading.Event()
        self._needed = threading.Event()

    def wait_until_needed(self) -> None:
        """Waits for the first query, or for `close`."""
        self._needed.wait()

    def close(self) -> None:
        """Ends `wait_until_needed`."""
        self._needed.set()

    def ready(self, spark: SparkSession) -> None:
        """Records that Spark has started."""
        self._spark = spark
        self._bulk = BulkSessions(spark)
        self._settled.set()

    def await_session(self) -> SparkSession:
        """Returns Spark's session, once it has started. Raises TaskError if it does not."""
        self._needed.set()
        self._settled.wait()
        if self._spark is None:
            raise TaskError(f"Spark did not start: {self._failure}")
        return self._spark

    def suspend(self) -> None:
        """Records that the session is gone, and that another one follows: starts wait for it."""
        self._settled.clear()

    def failed(self, reason: str) -> None:
        """Records that Spark has not started, or never will again: every query fails for this reason."""
        self._spark, self._failure = None, reason
        self._settled.set()

    def start(
        self,
        run: QueryRun,
        begin: Begin,
        hand_over: PartitionForwarder,
        pace: QueryMode,
        *,
        kafka: KafkaConnection | None = None,
        name: str | None = None,
        started: Callable[[], None],
        ended: Callable[[str | None], None],
    ) -> None:
        """Starts a query and sets `run.query`.

        `kafka`: another cluster than the job's own. `name`: see start_query. Posts `started` and later `ended` with the
        reason, or only `ended` if it cannot start.
        """

        def work() -> None:
            try:
                query = self._start(run, begin, hand_over, pace, kafka or self._kafka, name)
            except Exception as error:
                reason = describe_failure(error)
                self._post(lambda: ended(reason))
                return

            def arrived() -> None:
                run.query = query
                started()

            self._post(arrived)
            try:
                failure = query.wait()
            except Exception as error:
                failure = describe_failure(error)
            self._post(lambda: ended(failure))

        self._needed.set()
        threads.Thread(target=work, name=f"query-{run.number}").start()

    def stop(self, run: QueryRun, then: Callable[[], None] | None = None) -> None:
        """Stops a query that has started; posts `then` after the last of its tasks has ended."""
        query, before = run.query, run.predecessor
        assert query is not None

        def work() -> None:
            if before is not None and before.stopping is not None:
                before.stopping.join()
            try:
                query.stop()
            except Exception as error:
                log.warning("a query could not be stopped: %s", error)
            if then is not None:
                self._post(then)

        run.stopping = threads.Thread(target=work, name=f"stop-{run.number}")
        run.stopping.start()

    def on_stopped(self, run: QueryRun | None, then: Callable[[], None]) -> None:
        """Posts `then` after a query that is being stopped has stopped; calls it at once if there is none."""
        stopping = None if run is None else run.stopping
        if stopping is None:
            then()
            return

        def work() -> None:
            stopping.join()
            self._post(then)

        threads.Thread(target=work, name="awaiting-stop").start()

    def _start(
        self,
        run: QueryRun,
        begin: Begin,
        hand_over: PartitionForwarder,
        pace: QueryMode,
        kafka: KafkaConnection,
        name: str | None,
    ) -> RunningQuery:
        spark, bulk = self.await_session(), self._bulk
        assert bulk is not None
        if pace is QueryMode.BULK:
            spark = bulk.session_for(largest_message_bytes(kafka, begin))
        if hand_over.gateway is not None and hand_over.python_path is not None:
            send_files(spark, Path(hand_over.python_path), self._scratch)
        checkpoint = self._scratch / f"query-{run.number}"
        return start_query(spark, kafka, begin, hand_over, pace, checkpoint, name)
