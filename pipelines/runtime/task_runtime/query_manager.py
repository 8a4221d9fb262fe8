"""The queries of deployments: when one starts, which one follows it, and when it is stopped.

The query of channels starts when the StreamTasks are open: they read the channels themselves until it delivers
(direct_reading.py). The topics of a Kafka source are read by one query after another, in bulk or in real time,
depending on their lag (catch_up.py). To switch to bulk, the StreamTasks are told to accept only the new query's data
from now on, report their positions, and the new query starts there while the old one is stopped. To switch to real
time, the old query continues until the new one, whose records arrive one by one, has caught up with it. query_phase.py
has the table of phases.

A query that fails is started again after a pause. Meanwhile the StreamTasks read themselves, except in bulk. If
several fail, one soon after the other, the deployment fails.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ....infra import threads
from ....infra.kafka_connection import KafkaConnection
from ..common.deployment import vertex_of
from ..common.protocol import PartitionPositions, QueryConnected, SwitchQuery, WorkerHello
from ..common.settings import ExecutionMode
from ..common.task_logging import TaskLogging
from ..spark.catch_up import CatchUpPolicy, SourceLag
from ..spark.partition_forwarder import PartitionForwarder
from ..spark.query import QueryMode
from ..spark.query_inputs import TopicQueryInput
from ..spark.query_runner import QueryRun, QueryRunner
from ..spark.worker_connections import GatewayAddress
from .end_offsets import EndOffsets
from .partition_discovery import PartitionDiscovery
from .query_phase import QueryEvent, QueryPhase
from .runtime_state import Place, QuerySwitch, RunningDeployment, RunningExecution

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_CORES: Final = os.cpu_count() or 1
_OVERLAP_S: Final = 10.0
"""How long a coalesced query may need to start and to catch up, while the previous one still delivers ..."""
_LEAST_OVERLAP: Final = 4_000
"""... or so many messages of a partition."""
_CATCHES_UP_S: Final = 5.0
"""How long the previous query delivers after the tasks of a coalesced one have started: that repeats one by one what
has arrived since its start was requested."""
LAG_INTERVAL_S: Final = 0.5
"""The interval at which the lag of a Kafka source is measured."""
OPENS_S: Final = 2.0
"""How long the query of channels waits for StreamTasks that open slowly, after the first one is open."""
MAX_QUERY_FAILURES: Final = 5
"""So many queries may fail before a deployment does ..."""
STABLE_S: Final = 60.0
"""... unless one of them has run for this time."""
RESTART_PAUSE_S: Final = 0.5
"""The pause after the first failure; doubled each time."""


class QueryManager:
    """The queries of one TaskRuntime. All calls, and all callbacks, are in the runtime's loop.

    `failed`: the whole deployment fails for this reason. `dropped`: no part of a deployment runs any more.
    """

    def __init__(
        self,
        kafka: KafkaConnection,
        scratch: Path,
        lobby: str,
        post: Callable[[Callable[[], None]], None],
        *,
        failed: Callable[[RunningDeployment, str], None],
        dropped: Callable[[RunningDeployment], None],
        gateway: GatewayAddress | None = None,
    ) -> None:
        self._gateway = gateway
        self._lobby = lobby
        self._post = post
        self._fail_all = failed
        self._dropped = dropped
        self._queries = QueryRunner(kafka, scratch, post)
        self._kafka = kafka
        self._end_offsets = EndOffsets(kafka)
        self._runs: dict[int, RunningDeployment] = {}
        self._number = 0
        self.refuses = False
        """Whether no query can be started any more."""
        self._has_no_spark = False

    def wait_until_spark_is_needed(self) -> None:
        """Waits until a query is to start, or no query will be; from any thread but the loop's."""
        self._queries.wait_until_needed()

    def await_spark(self) -> SparkSession:
        """Starts Spark if it does not run, and returns its session; from any thread but the loop's.

        Raises TaskError.
        """
        return self._queries.await_session()

    def on_closed(self) -> None:
        """Ends `wait_until_spark_is_needed`; from any thread."""
        self._queries.close()

    def on_spark_started(self, spark: SparkSession) -> None:
        """Allows queries to start; from any thread."""
        self._queries.ready(spark)

    def on_spark_suspended(self) -> None:
        """Lets queries wait for the next session, from any thread."""
        self._queries.suspend()

    def on_spark_failed(self, reason: str) -> None:
        """Fails all deployments with queries, now and later; from any thread."""
        self._has_no_spark = True
        self._queries.failed(reason)

    def start_if_due(self, deployment: RunningDeployment) -> None:
        """Starts the query if its inputs are known; that of channels only after the StreamTasks, which need the
        processor first."""
        live = deployment.live
        if deployment.phase is not QueryPhase.WAITING or not live or deployment.waiting or self.refuses:
            return
        topics = isinstance(deployment.reading, TopicQueryInput)
        if any(e.positions is None and (topics or e.subtask.has_past) for e in live):
            return
        if not topics and not all(e.running for e in live) and not deployment.is_late:
            self._start_late(deployment)
            return
        if topics and not any(e.positions for e in live):
            deployment.transition(QueryEvent.NOTHING_TO_READ)
            self._discover_partitions(deployment)
        elif deployment.can_switch_mode:
            self._watch(deployment)
        elif topics:
            self._start(deployment, self._new_run(deployment), QueryMode.BULK)
        else:
            micro_batch = deployment.settings.mode is ExecutionMode.MICRO_BATCH
            pace = QueryMode.MICRO_BATCH if micro_batch else QueryMode.REAL_TIME
            self._start(deployment, self._new_run(deployment), pace)

    def _start_late(self, deployment: RunningDeployment) -> None:
        """Starts the query after a while, if a StreamTask is open and others are still being opened."""
        if deployment.late_timer is not None or not any(e.running for e in deployment.live):
            return

        def start() -> None:
            deployment.is_late = True
            self.start_if_due(deployment)

        deployment.late_timer = threads.Timer(OPENS_S, lambda: self._post(start), name="late query")
        deployment.late_timer.start()

    def _new_run(self, deployment: RunningDeployment) -> QueryRun:
        self._number += 1
        self._runs[self._number] = deployment
        return QueryRun(self._number)

    def _start(self, deployment: RunningDeployment, run: QueryRun, pace: QueryMode, overlap: int = 0) -> None:
        reading, receivers = deployment.reading, deployment.receivers
        assert reading is not None
        deployment.transition(QueryEvent.START)
        deployment.run = run
        run.mode = pace
        begin = reading.begin(receivers)
        run.awaited = sum(map(len, begin.values()))
        if not pace.is_continuous:
            # Its tasks begin with the first batch, which may come much later: the query counts as connected when it
            # has started.
            run.awaited = 1
        hand_over = PartitionForwarder(
            run.number,
            self._lobby,
            reading.plan(receivers, pace, overlap),
            deployment.python_path,
            TaskLogging.from_deployment(deployment.spec),
            self._gateway,
        )
        self._queries.start(
            run,
            begin,
            hand_over,
            pace,
            kafka=reading.connection,
            name=f"{deployment.spec.vertex.name} (job {deployment.spec.job_id[:8]}, query {run.number})",
            started=lambda: self._on_query_started(deployment, run, pace),
            ended=lambda failure: self._on_query_ended(deployment, run, failure),
        )

    def _on_query_started(self, deployment: RunningDeployment, run: QueryRun, pace: QueryMode) -> None:
        if not deployment.live:
            self._queries.stop(run, lambda: self.drop(deployment))
            return
        if not pace.is_continuous:
            run.awaited = 0
        self._connect_if_due(deployment, run)

    def _connect_if_due(self, deployment: RunningDeployment, run: QueryRun) -> None:
        if run.awaited <= 0 and deployment.phase is QueryPhase.STARTING:
            deployment.transition(QueryEvent.CONNECT)
            run.connected_at = time.monotonic()
            if run.mode is not QueryMode.COALESCED:
                self._stop_predecessor(run)
            self._announce(deployment)

    def _announce(self, deployment: RunningDeployment) -> None:
        """Tells StreamTasks that they need not read any more, even if no input arrives."""
        for execution in deployment.live:
            execution.send(QueryConnected())

    def _on_query_ended(self, deployment: RunningDeployment, run: QueryRun, failure: str | None) -> None:
        if run.stopping is not None:
            return
        run.has_failed = True
        if not deployment.live:
            self.drop(deployment)
            return
        if run is not deployment.run or deployment.phase not in (QueryPhase.STARTING, QueryPhase.RUNNING):
            return  # the next query is on its way
        reason = failure or "Spark's query ended by itself"
        if run.connected_at is not None and time.monotonic() - run.connected_at >= STABLE_S:
            deployment.query_failures = 0
        deployment.query_failures += 1
        if self._has_no_spark or self.refuses or deployment.query_failures > MAX_QUERY_FAILURES:
            self._fail_all(deployment, reason)
            return
        self._restart_later(deployment, run, reason)

    def _restart_later(self, deployment: RunningDeployment, run: QueryRun, reason: str) -> None:
        """Lets the StreamTasks read themselves, and starts the next query after a pause."""
        pause_s = RESTART_PAUSE_S * 2.0 ** (deployment.query_failures - 1)
        log.warning(
            "the query of vertex %s is started again in %.1f s: %s",
            deployment.spec.vertex_id,
            pause_s,
            reason,
        )
        deployment.transition(QueryEvent.FAIL)
        self._stop_predecessor(run)
        if run.query is not None:
            self._queries.stop(run)
        self._number += 1
        # What the failed queries have delivered until now counts, and nothing later.
        reads = run.mode.is_continuous
        for execution in deployment.live:
            execution.send(SwitchQuery(self._number, reads_directly=reads))

        def restart() -> None:
            if deployment.phase is QueryPhase.PAUSED and deployment.live and not self.refuses:
                policy = deployment.catch_up
                self._switch(deployment, run.mode if policy is None else policy.pace)

        threads.Timer(pause_s, lambda: self._post(restart), name="restart of a query").start()

    def drop(self, deployment: RunningDeployment) -> None:
        """Records that no part of the deployment runs any more."""
        self._dropped(deployment)
        for number in [number for number, of in self._runs.items() if of is deployment]:
            del self._runs[number]

    def _watch(self, deployment: RunningDeployment) -> None:
        """Measures the lag of a Kafka source until the deployment ends, and looks for new partitions."""
        deployment.transition(QueryEvent.WATCH)
        self._measure_lag(deployment)
        self._discover_partitions(deployment)

    def _measure_lag(self, deployment: RunningDeployment) -> None:
        reading = deployment.reading
        assert isinstance(reading, TopicQueryInput)
        _note_places(deployment, reading)
        other = reading.connection
        end_offsets = self._end_offsets if other is None else EndOffsets(other)

        def work() -> None:
            has_warned = False
            while True:
                try:
                    ends = end_offsets.read(deployment.places)
                except Exception as error:
                    # Without brokers no records arrive either; asks again until they are available.
                    if not has_warned:
                        log.warning("the end offsets of topics could not be read; retries: %s", error)
                    has_warned = True
                else:
                    has_warned = False
                    at = time.monotonic()
                    self._post(lambda ends=ends, at=at: self._on_lag_measured(deployment, ends, at))  # type: ignore[misc]
                if deployment.over.wait(LAG_INTERVAL_S):
                    return

        threads.Thread(target=work, name=f"lag-{deployment.number}").start()

    def on_positions_moved(self, deployment: RunningDeployment) -> None:
        """Takes what a StreamTask has read from the lag that was measured last: the end offsets are those of then."""
        ends, _ = deployment.written
        if deployment.pending_records is not None and isinstance(deployment.reading, TopicQueryInput):
            deployment.pending_records = sum(_behind(deployment, deployment.reading, ends))

    def _discover_partitions(self, deployment: RunningDeployment) -> None:
        """Looks for new partitions until the deployment ends, if the source wants it."""
        reading = deployment.reading
        if not isinstance(reading, TopicQueryInput) or not deployment.can_switch_mode:
            return
        interval_ms = reading.source.discovery_ms
        if interval_ms is None:
            return
        parallelism = vertex_of(deployment.spec.job_graph, deployment.spec.vertex_id).parallelism
        discovery = PartitionDiscovery(reading.connection or self._kafka, reading.source, parallelism)
        subtasks = [execution.subtask.subtask_index for execution in deployment.executions]

        def work() -> None:
            while not deployment.over.wait(interval_ms / 1000):
                try:
                    new = discovery.find_new(deployment.places, subtasks)
                except (
                    Exception
                ) as error:  # the lag of the known ones is not measured either then, which warns
                    log.info("new partitions could not be looked for; retries: %s", error)
                    continue
                if new:
                    self._post(lambda new=new: self._on_partitions_found(deployment, new))  # type: ignore[misc]

        threads.Thread(target=work, name=f"partitions-{deployment.number}").start()

    def _on_partitions_found(
        self, deployment: RunningDeployment, new: Mapping[int, Mapping[Place, int]]
    ) -> None:
        """Switches to a query that reads these partitions too. If a query is just starting, they are found again."""
        run = deployment.run
        is_idle = deployment.phase is QueryPhase.UNUSED
        is_running = deployment.phase is QueryPhase.RUNNING and run is not None and run.query is not None
        found = {place for those in new.values() for place in those}
        if not deployment.live or not (is_idle or is_running) or found <= deployment.places:
            return
        for topic, partition in sorted(found):
            log.info("the Kafka source reads %s-%d from now on", topic, partition)
        if deployment.catch_up is None:
            deployment.catch_up = CatchUpPolicy.initial(
                SourceLag(0, 0.0, len(found), _CORES), time.monotonic()
            )
        self._switch(deployment, deployment.catch_up.pace, new)
        if is_idle:
            self._measure_lag(deployment)

    def _on_lag_measured(self, deployment: RunningDeployment, ends: Mapping[Place, int], now: float) -> None:
        reading = deployment.reading
        if not deployment.live or not isinstance(reading, TopicQueryInput):
            return
        lag = _lag(deployment, reading, ends, now)
        deployment.pending_records, deployment.arriving = lag.records, lag.arriving
        if deployment.catch_up is None:
            deployment.catch_up = CatchUpPolicy.initial(lag, now)
            if deployment.catch_up.pace is QueryMode.REAL_TIME:
                self._switch(deployment, QueryMode.REAL_TIME)
            else:
                self._start(deployment, self._new_run(deployment), deployment.catch_up.pace)
            return
        run = deployment.run
        if deployment.phase is not QueryPhase.RUNNING or run is None or run.query is None:
            return
        if run.connected_at is not None and now >= run.connected_at + _CATCHES_UP_S:
            self._stop_predecessor(run)
        before, deployment.catch_up = deployment.catch_up, deployment.catch_up.next_policy(lag, now)
        if deployment.catch_up.pace is not before.pace:
            self._switch(deployment, deployment.catch_up.pace)

    def _switch(
        self,
        deployment: RunningDeployment,
        pace: QueryMode,
        added: Mapping[int, Mapping[Place, int]] | None = None,
    ) -> None:
        run, before = self._new_run(deployment), deployment.run
        if before is not None:
            log.info("vertex %s continues in %s mode", deployment.spec.vertex_id, pace.value)
        at_once = not _overlaps(before, pace)
        reads = pace is QueryMode.REAL_TIME and (at_once or before is None or before.running is None)
        deployment.transition(QueryEvent.SWITCH)
        overlap = _overlap(deployment) if pace is QueryMode.COALESCED else None
        deployment.switch = QuerySwitch(run, pace, overlap)
        for execution in deployment.live:
            own = (added or {}).get(execution.subtask.subtask_index, {})
            by_topic: dict[str, dict[int, int]] = {}
            for (topic, partition), offset in own.items():
                by_topic.setdefault(topic, {})[partition] = offset
            execution.send(SwitchQuery(run.number, at_once, by_topic, overlap, reads))

    def switch_if_answered(self, deployment: RunningDeployment) -> None:
        """Starts the next query when all subtasks have reported its start positions."""
        live, before, switch = deployment.live, deployment.run, deployment.switch
        if switch is None or not live:
            return
        if switch.answered.issuperset(execution.id for execution in live):
            deployment.switch = None
            if isinstance(deployment.reading, TopicQueryInput):
                _note_places(deployment, deployment.reading)
            if before is not None:
                self._stop_predecessor(before)
                before.predecessor, switch.run.predecessor = None, before
            self._start(deployment, switch.run, switch.mode, switch.overlap or 0)
            if before is not None and before.running is not None and not _overlaps(before, switch.mode):
                self._queries.stop(before)

    def on_worker_hello(self, greeting: WorkerHello) -> None:
        """Handles a worker of Spark that has started, or failed to."""
        deployment = self._runs.get(greeting.query)
        if deployment is None:
            return
        run = deployment.run
        if greeting.failure is not None:
            self._fail_all(deployment, greeting.failure)
        elif run is not None and run.number == greeting.query:
            run.awaited -= 1
            self._connect_if_due(deployment, run)
            if run.awaited < 0 and run.mode.is_continuous:
                self._announce(deployment)  # the next batch has begun

    def on_query_switched(
        self, execution: RunningExecution, query: int, positions: PartitionPositions
    ) -> None:
        """Handles a StreamTask that waits for this query, from these positions."""
        deployment = execution.deployment
        if deployment.switch is not None and deployment.switch.run.number == query:
            execution.positions = positions
            deployment.switch.answered.add(execution.id)
            self.switch_if_answered(deployment)

    def stop(self, deployment: RunningDeployment, then: Callable[[], None]) -> None:
        """Stops the query of a deployment whose attempts have all ended, and calls `then` when no part of it runs
        any more."""
        deployment.transition(QueryEvent.STOP)
        deployment.over.set()
        run = deployment.run
        if run is not None:
            self._stop_predecessor(run)

        def stopped() -> None:
            self.drop(deployment)
            then()

        if run is None or (run.query is None and not run.has_failed):
            # A query that is starting is stopped after its start. The previous one may still run.
            self._queries.on_stopped(None if run is None else run.predecessor, then)
        elif run.running is None:
            self._queries.on_stopped(run if run.stopping is not None else run.predecessor, stopped)
        else:
            self._queries.stop(run, stopped)

    def _stop_predecessor(self, run: QueryRun) -> None:
        before = run.predecessor
        if before is not None and before.running is not None:
            self._queries.stop(before)

    def close(self, deployment: RunningDeployment) -> None:
        """Stops the query of a deployment, from another thread: the loop has ended."""
        deployment.over.set()
        run = deployment.run
        for candidate in (run, None if run is None else run.predecessor):
            query = None if candidate is None else candidate.running
            if query is not None and not self.refuses:
                query.stop()


def _overlaps(before: QueryRun | None, pace: QueryMode) -> bool:
    """Whether the previous query continues until the next one, in this mode, has caught up with it.

    Messages that a coalesced query holds must not wait for a query in real time: the task reads them itself.
    """
    if pace is QueryMode.REAL_TIME:
        return before is None or before.mode is not QueryMode.COALESCED
    return pace is QueryMode.COALESCED


def _overlap(deployment: RunningDeployment) -> int:
    """Returns how many messages of each partition a coalesced query delivers one by one."""
    return max(_LEAST_OVERLAP, round(deployment.arriving * _OVERLAP_S / max(1, len(deployment.places))))


def _note_places(deployment: RunningDeployment, reading: TopicQueryInput) -> None:
    begin = reading.begin(deployment.receivers)
    deployment.places = frozenset((topic, partition) for topic, those in begin.items() for partition in those)


def _lag(
    deployment: RunningDeployment, reading: TopicQueryInput, ends: Mapping[tuple[str, int], int], now: float
) -> SourceLag:
    """Returns how far the source is behind, and what arrived since the last call."""
    behind = _behind(deployment, reading, ends)
    (before, then), deployment.written = deployment.written, (ends, now)
    if not then or now <= then:
        return SourceLag(sum(behind), 0.0, len(behind), _CORES)
    rates = [(end - before.get(place, end)) / (now - then) for place, end in ends.items()]
    return SourceLag(sum(behind), sum(rates), len(behind), _CORES, min(rates, default=0.0))


def _behind(deployment: RunningDeployment, reading: TopicQueryInput, ends: Mapping[Place, int]) -> list[int]:
    """Returns how many records of each partition are not read."""
    return [
        max(0, ends.get((topic, partition), 0) - position)
        for topic, offsets in reading.begin(deployment.receivers).items()
        for partition, position in offsets.items()
    ]
