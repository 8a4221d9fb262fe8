"""One attempt of one subtask: document 002's lifecycle (initialise state, open, run, close).

The task thread takes letters out of the mailbox, lets the subtask work, and commits: soon after records have come in
(pacing.py), when much has gathered, and at the end.

Nothing is sent when nothing happened. Channels are told the time where somebody behind them wants to know; a subtask
whose input brought nothing but times forwards them, and commits its position only now and then, since they may be read
again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer

from ...graph.physical_plan import channel_topic, consumer_group, output_topic, transactional_id
from ..deployment import VertexDeployment
from ..failures import TaskError, describe
from ..kafka_source import KafkaSource
from ..protocol import (
    BUFFER,
    RECORDS,
    SKIPPED,
    SKIPPING,
    Canceled,
    Counted,
    Failed,
    Finished,
    Notice,
    Open,
    Opened,
    Positions,
    Restored,
    Switch,
    Switched,
)
from ..settings import Settings
from .assembly import Assembly, KafkaInput
from .kafka import group_consumer
from .kafka_reading import settle
from .mailbox import HandedOver, Letter, Mailbox, TaskCanceled, Woken
from .pacing import Pacing
from .positions import InputPositions
from .progress import Progress
from .restore import read_changelog, read_committed
from .subtask import Subtask
from .transactions import Transactions

MUCH: Final = 50_000
"""Records that have gathered for output and are committed at once instead of at the next interval."""
POLL_LIMIT: Final = 10_000
"""Records that a source is asked for at once: between two polls commands are heard."""

_FOREVER_S: Final = 3600.0
_COUNT_INTERVAL_S: Final = 1.0
"""How often counts are told at most: nobody asks for them more often than heartbeats are sent."""


class StreamTask:
    """Call `invoke` once. `notify` is called from the same thread."""

    def __init__(self, opening: Open, mailbox: Mailbox, notify: Callable[[Notice], None]) -> None:
        self._bootstrap_servers = opening.bootstrap_servers
        self._deployment = opening.deployment
        self._subtask = opening.subtask_index
        self._attempt = opening.attempt_number
        self._mailbox = mailbox
        self._notify = notify
        self._transactions: Transactions | None = None
        self._wall_clock = WallClock()

    def invoke(self) -> None:
        """Runs the attempt to its end, which is the last notice. Raises nothing."""
        last: Notice
        try:
            assembly, subtask = self._prepare()
            run = Run(
                subtask,
                assembly,
                self._mailbox,
                Settings.of(self._deployment.job_graph.configuration),
                self._wall_clock,
                self._notify,
            )
            try:
                run.open()
                self._notify(Opened())
                run.until_ended()
            finally:
                subtask.close()
        except TaskCanceled:
            last = Canceled()
        except Exception as error:
            last = Failed(describe(error))
        else:
            last = Finished()
        if self._transactions is not None:
            self._transactions.abort()
        self._notify(last)

    def _prepare(self) -> tuple[Assembly, Subtask]:
        """Initialises state: fences older attempts, reads progress and changelog, builds the operators."""
        deployment = self._deployment
        names = deployment.cluster, deployment.job_id
        group = consumer_group(*names, deployment.vertex_id, self._subtask)
        consumer = group_consumer(self._bootstrap_servers, group)
        transactions = self._transactions = Transactions(
            self._bootstrap_servers,
            transactional_id(*names, deployment.vertex_id, self._subtask),
            consumer.consumer_group_metadata(),
        )
        assembly = Assembly(deployment, self._subtask, self._attempt, transactions, self._wall_clock)
        transactions.open(assembly.changelog or _any_topic(deployment))
        if (source := assembly.through_spark) is not None:
            subtask, ends = self._kafka_subtask(assembly, KafkaSource.of(source), consumer, transactions)
        else:
            topics = assembly.channel_topics
            committed = read_committed(consumer, [(topic, self._subtask) for topic in topics])
            subtask, ends = assembly.subtask(Progress.read(topics, committed)), None
        self._notify(Restored(os.getpid(), subtask.positions, ends))
        if assembly.changelog is not None:
            for key, message in read_changelog(consumer, assembly.changelog, self._subtask):
                subtask.restore(key, message)
        consumer.close()
        return assembly, subtask

    def _kafka_subtask(
        self, assembly: Assembly, source: KafkaSource, consumer: Consumer, transactions: Transactions
    ) -> tuple[Subtask, Positions | None]:
        """Settles what the subtask reads, and commits that; its ends, where the source is bounded."""
        parallelism = assembly.vertex.parallelism
        reading = settle(consumer, self._bootstrap_servers, source, self._subtask, parallelism)
        if reading.settled:
            transactions.commit(reading.settled)
        if source.group_id is not None:
            transactions.share_progress(source.group_id)
        ends = None if reading.ends is None else InputPositions(reading.ends).by_input()
        kafka = KafkaInput(reading.topics, reading.ends)
        return assembly.subtask(Progress(reading.positions, ()), kafka), ends


class WallClock:
    """Milliseconds since the epoch; never falls, also where the machine's clock is set back."""

    def __init__(self) -> None:
        self._last = 0

    def __call__(self) -> int:
        self._last = max(self._last, time.time_ns() // 1_000_000)
        return self._last


class Run:
    """A restored subtask at work: its letters, its polls, its commits, and what it is to be told of time."""

    def __init__(
        self,
        subtask: Subtask,
        assembly: Assembly,
        mailbox: Mailbox,
        settings: Settings,
        wall_clock: WallClock,
        notify: Callable[[Notice], None],
    ) -> None:
        self._task = subtask
        self._assembly = assembly
        self._mailbox = mailbox
        self._wall_clock = wall_clock
        self._notify = notify
        self._polls = assembly.parts.source is not None and assembly.through_spark is None
        self._ticks = assembly.parts.source is not None and subtask.clocked
        self._tick_interval = settings.watermark_interval_ms / 1000
        self._idle_commit_interval = settings.idle_commit_interval_ms / 1000
        self._pacing = Pacing(settings.commit_interval_ms / 1000)
        self._query = 0
        self._poll_at = 0.0
        self._told_at = 0.0
        self._counted_at = 0.0
        self._uncounted = False
        self._commits = 0
        self._dirty_since: float | None = None
        self._moved_since: float | None = None

    def open(self) -> None:
        """Opens the operators, then the source. Raises UserCodeError, TaskError, TaskCanceled."""
        source = None
        if self._polls:
            source = self._assembly.source_setup(self._wall_clock, self._mailbox.wake, self._pause)
        self._task.open(source)

    def until_ended(self) -> None:
        """Works until all input has ended and all output is committed. Raises TaskCanceled."""
        task = self._task
        while not task.ended:
            now = time.monotonic()
            for letter in self._mailbox.take(self._next(now) - now):
                self._handle(letter)
                if task.pending >= MUCH:
                    self._commit()
            if self._polls and not task.ended:
                self._poll()
            if not task.ended:
                self._keep_time()
        self._commit(ends=True)

    def _pause(self, seconds: float) -> None:
        self._mailbox.take(seconds)

    def _handle(self, letter: Letter) -> None:
        match letter:
            case HandedOver():
                if letter.query >= self._query:
                    self._take(letter)
            case Switch(query):
                self._query = query
                self._notify(Switched(query, self._task.positions))
            case Woken():
                self._poll_at = 0.0

    def _take(self, letter: HandedOver) -> None:
        task, place = self._task, (letter.input_index, letter.partition, letter.first)
        if letter.kind == BUFFER:
            task.take_buffer(*place, letter.content)
        elif letter.kind == RECORDS:
            task.take_records(*place, letter.following, letter.content)
        elif letter.kind == SKIPPING:
            (skipped,) = SKIPPED.unpack_from(letter.content)
            task.take_records(*place, letter.following, letter.content[SKIPPED.size :], skipped)
        elif task.admits(*place, letter.following):
            raise TaskError(letter.content.decode())

    def _poll(self) -> None:
        now = time.monotonic()
        if now >= self._poll_at:
            polled = self._task.poll(POLL_LIMIT)
            self._poll_at = now + polled.wait_s
            if self._task.pending >= MUCH:
                self._commit()

    def _keep_time(self) -> None:
        """Commits, or tells the time, if either is due."""
        task = self._task
        now = time.monotonic()
        self._dirty_since = (self._dirty_since or now) if task.dirty else None
        self._moved_since = (self._moved_since or now) if task.moved else None
        if now >= self._next_count():
            self._count(now)
        if now >= self._next_tick():
            self._tick(now)
        if now >= self._next_commit(now):
            self._commit()

    def _tick(self, now: float) -> None:
        self._told_at = now
        self._read_clock()
        if self._task.is_behind and not self._task.tell_time():
            self._commit(tell_all=True)

    def _read_clock(self) -> None:
        if self._ticks:
            # A record that is polled later has this millisecond's time, or a later one.
            self._task.advance_clock(self._wall_clock() - 1)

    def _next(self, now: float) -> float:
        """When there is something to do if nothing comes in."""
        due = min(self._next_commit(now), self._next_tick(), self._next_count())
        return min(due, self._poll_at) if self._polls else due

    def _next_commit(self, now: float) -> float:
        due = now + _FOREVER_S
        if self._dirty_since is not None:
            busy = not self._mailbox.empty or (self._polls and self._poll_at <= now)
            due = self._pacing.due(self._dirty_since, busy=busy)
        if self._moved_since is not None:
            due = min(due, self._moved_since + self._idle_commit_interval)
        return due

    def _next_tick(self) -> float:
        if self._ticks or self._task.is_behind:
            return self._told_at + self._tick_interval
        return float("inf")

    def _commit(self, *, tell_all: bool = False, ends: bool = False) -> None:
        began = time.monotonic()
        if ends:
            self._task.finish()
        else:
            self._read_clock()
            if not self._task.commit(tell_all=tell_all):
                self._dirty_since = None
                return
        ended = time.monotonic()
        self._pacing.committed(began, ended)
        self._dirty_since = self._moved_since = None
        self._commits += 1
        self._uncounted = True
        if ends or ended >= self._next_count():
            self._count(ended)

    def _next_count(self) -> float:
        """When what was committed is told."""
        return self._counted_at + _COUNT_INTERVAL_S if self._uncounted else float("inf")

    def _count(self, now: float) -> None:
        self._counted_at = now
        self._uncounted = False
        self._notify(
            Counted(
                self._task.records_in,
                self._task.records_out,
                self._commits,
                self._assembly.accumulators.committed(),
                self._assembly.metrics(),
                {} if self._assembly.through_spark is None else self._task.positions,
            )
        )


def _any_topic(deployment: VertexDeployment) -> str:
    """A topic of the job that exists: a vertex has an input or an output, or it prints."""
    for edge in (*deployment.inputs, *deployment.outputs):
        return channel_topic(deployment.cluster, deployment.job_id, edge.data_set_id)
    return output_topic(deployment.cluster, deployment.job_id)
