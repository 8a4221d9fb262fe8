"""One attempt of one subtask: document 002's lifecycle (initialise state, open, run, close).

The task thread takes letters out of the mailbox, lets the operators work, and commits: when records have
waited for the commit interval, when much has gathered, when channels have to be told the time, and at the
end. Everything between two commits is one transaction, so that a successor begins exactly where the last one
ended: inputs at the committed offsets, state as the changelog has it, output as the channels have it.

Nothing is sent when nothing happened. A source tells its channels the time all the same; a task whose input
brought nothing but watermarks forwards them, and commits its position only now and then, since they may be
read again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Final

from ....schemas.types import JobEdge, OperatorConfig, Partitioner
from ...graph.physical_plan import (
    changelog_topic,
    channel_topic,
    consumer_group,
    has_changelog,
    output_topic,
    transactional_id,
)
from ..buffers import END_OF_TIME, NO_WATERMARK, Batch, BufferCodec
from ..deployment import VertexDeployment, vertex_of
from ..failures import TaskError, describe
from ..operators.build import any_kind
from ..operators.chain import Chain
from ..operators.functions import load_code
from ..operators.operator import Operator
from ..operators.window_reduce import WindowReduce
from ..protocol import Canceled, Counted, Failed, Finished, Notice, Open, Opened, Restored
from ..settings import Settings
from ..vertex import output_type, parts_of
from .input_gate import InputGate
from .input_thread import InputThread
from .kafka import group_consumer
from .mailbox import InputBuffer, InputFailure, Letter, Mailbox, SourceEnded, SourceRead, TaskCanceled
from .pacing import Pacing
from .progress import Progress
from .record_writer import Channel, ChannelWriter, RecordWriter
from .restore import read_changelog, read_progress
from .source import SocketTextSource
from .transactions import Transactions

MUCH: Final = 50_000
"""Records that have gathered for output and are committed at once instead of at the next interval."""

_FOREVER_S: Final = 3600.0
_COUNT_INTERVAL_S: Final = 1.0
"""How often counts are told at most: nobody asks for them more often than heartbeats are sent."""


class StreamTask:
    """Call `invoke` once. `notify` is called from the same thread."""

    def __init__(
        self,
        opening: Open,
        mailbox: Mailbox,
        input_thread: InputThread,
        notify: Callable[[Notice], None],
    ) -> None:
        self._bootstrap_servers = opening.bootstrap_servers
        self._deployment = opening.deployment
        self._subtask = opening.subtask_index
        self._attempt = opening.attempt_number
        self._mailbox = mailbox
        self._input_thread = input_thread
        self._notify = notify
        self._transactions: Transactions | None = None

    def invoke(self) -> None:
        """Runs the attempt to its end, which is the last notice. Raises nothing."""
        try:
            running = self._prepare()
            try:
                running.open()
                self._notify(Opened())
                running.run()
            finally:
                running.close()
        except TaskCanceled:
            last: Notice = Canceled()
        except Exception as error:
            last = Failed(describe(error))
        else:
            last = Finished()
        if self._transactions is not None:
            self._transactions.abort()
        self._notify(last)

    def _prepare(self) -> RunningTask:
        """Initialises state: fences older attempts, reads progress and changelog, builds the operators."""
        deployment = self._deployment
        names = deployment.cluster, deployment.job_id
        vertex = deployment.vertex
        parts = parts_of(vertex)
        group = consumer_group(*names, vertex.vertex_id, self._subtask)
        consumer = group_consumer(self._bootstrap_servers, group)
        transactions = self._transactions = Transactions(
            self._bootstrap_servers,
            transactional_id(*names, vertex.vertex_id, self._subtask),
            consumer.consumer_group_metadata(),
        )
        source, prefix = parts.source, parts.prefix
        input_topics = [channel_topic(*names, edge.data_set_id) for edge in deployment.inputs]
        printed = output_topic(*names)

        def emit(message: bytes, timestamp_ms: int) -> None:
            transactions.send(printed, 0, message, timestamp_ms)

        here = parts.rest if source is None else (*prefix, *parts.rest)
        operators = any_kind(here, self._subtask, vertex.max_parallelism, emit)
        by_id = {config.operator_id: operator for config, operator in zip(here, operators, strict=True)}

        transactions.open(_any_topic(deployment))
        progress = read_progress(consumer, input_topics, self._subtask)
        self._notify(Restored(os.getpid(), progress.positions))
        changelog = changelog_topic(*names, vertex.vertex_id) if has_changelog(vertex) else None
        if changelog is not None:
            for key, message in read_changelog(consumer, changelog, self._subtask):
                operator = by_id.get(key.decode())
                if not isinstance(operator, WindowReduce):
                    raise TaskError(
                        f"{changelog} holds state of an operator that vertex {vertex.name!r} has not"
                    )
                operator.state.restore(message)
        consumer.close()

        return RunningTask(
            settings=Settings.of(deployment.job_graph.configuration),
            mailbox=self._mailbox,
            input_thread=self._input_thread,
            transactions=transactions,
            source=None if source is None else SocketTextSource.of(source),
            gate=InputGate(
                [
                    vertex_of(deployment.job_graph, edge.source_vertex_id).parallelism
                    for edge in deployment.inputs
                ],
                progress.positions,
                progress.ended,
            ),
            codecs=[self._input_codec(edge, prefix) for edge in deployment.inputs],
            operators=operators,
            stateful={key: each for key, each in by_id.items() if isinstance(each, WindowReduce)},
            writer=RecordWriter([self._channel_writer(edge) for edge in deployment.outputs]),
            input_topics=input_topics,
            changelog=changelog,
            subtask=self._subtask,
            notify=self._notify,
        )

    def _input_codec(self, edge: JobEdge, prefix: tuple[OperatorConfig, ...]) -> BufferCodec:
        """For what Spark hands over: records of the edge, or what the stateless prefix made of them."""
        upstream = vertex_of(self._deployment.job_graph, edge.source_vertex_id)
        return BufferCodec(output_type(prefix or upstream.operators))

    def _channel_writer(self, edge: JobEdge) -> ChannelWriter:
        deployment = self._deployment
        target = vertex_of(deployment.job_graph, edge.target_vertex_id)
        channel = Channel(
            channel_topic(deployment.cluster, deployment.job_id, edge.data_set_id),
            target.parallelism,
            edge.partitioner,
            target.max_parallelism,
            load_code(edge.code)[0] if edge.partitioner is Partitioner.HASH else None,
        )
        return ChannelWriter(channel, output_type(deployment.vertex.operators), self._subtask, self._attempt)


def _any_topic(deployment: VertexDeployment) -> str:
    """A topic of the job that exists: a vertex has an input or an output, or it prints."""
    for edge in (*deployment.inputs, *deployment.outputs):
        return channel_topic(deployment.cluster, deployment.job_id, edge.data_set_id)
    return output_topic(deployment.cluster, deployment.job_id)


class RunningTask:
    """The task once its state is there: operators, inputs, outputs, and the clock."""

    def __init__(
        self,
        *,
        settings: Settings,
        mailbox: Mailbox,
        input_thread: InputThread,
        transactions: Transactions,
        source: SocketTextSource | None,
        gate: InputGate,
        codecs: list[BufferCodec],
        operators: list[Operator],
        stateful: dict[str, WindowReduce],
        writer: RecordWriter,
        input_topics: list[str],
        changelog: str | None,
        subtask: int,
        notify: Callable[[Notice], None],
    ) -> None:
        self._settings = settings
        self._mailbox = mailbox
        self._input_thread = input_thread
        self._transactions = transactions
        self._source = source
        self._gate = gate
        self._codecs = codecs
        self._chain = Chain(operators)
        self._stateful = stateful
        self._writer = writer
        self._input_topics = input_topics
        self._changelog = changelog
        self._subtask = subtask
        self._notify = notify
        self._records_in = 0
        self._records_out = 0
        self._commit_count = 0
        self._counted_at = 0.0
        self._watermark = NO_WATERMARK
        self._last_read = 0
        self._source_ended = False
        self._dirty_since: float | None = None
        self._position_since: float | None = None
        self._told_at = 0.0
        self._commits = Pacing(settings.commit_interval_ms / 1000)
        self._ticks = Pacing(settings.watermark_interval_ms / 1000)
        self._has_outputs = writer.channel_count > 0

    def open(self) -> None:
        """Opens the operators, then the source. Raises UserCodeError, TaskError, TaskCanceled."""
        self._chain.open()
        if self._source is not None:
            connection = self._source.connect(self._pause)
            self._input_thread.read_lines(connection, self._source.delimiter)

    def run(self) -> None:
        """Works until all input has ended and all output is committed. Raises TaskCanceled."""
        if self._gate.ended:
            self._advance(END_OF_TIME)
        while not self._ended:
            for letter in self._mailbox.take(self._wait(time.monotonic())):
                self._handle(letter)
            if not self._ended:
                self._keep_time()
        self._commit(ends=True)

    def close(self) -> None:
        """Closes the operators."""
        self._chain.close()

    @property
    def _ended(self) -> bool:
        return self._source_ended if self._source is not None else self._gate.ended

    def _pause(self, seconds: float) -> None:
        self._mailbox.take(seconds)

    def _handle(self, letter: Letter) -> None:
        match letter:
            case InputBuffer(input_index, offset, data):
                if self._gate.admits(input_index, offset):
                    self._take(input_index, offset, data)
            case SourceRead(read_at, records):
                # The clock may be set back, and this letter may have been on its way at the last tick.
                self._last_read = max(read_at, self._watermark + 1)
                self._process(Batch([self._last_read] * len(records), list(records)))
            case SourceEnded(reason):
                if reason is not None:
                    raise TaskError(reason)
                self._source_ended = True
                self._advance(END_OF_TIME)
            case InputFailure(_, reason):
                raise TaskError(reason)

    def _take(self, input_index: int, offset: int, data: bytes) -> None:
        header, batch = self._codecs[input_index].decode(data)
        self._gate.take(input_index, offset, header)
        if self._position_since is None:
            self._position_since = time.monotonic()
        if batch.values:
            self._process(batch)
        self._gate.conclude(input_index, header)
        if self._gate.watermark > self._watermark:
            self._advance(self._gate.watermark)

    def _process(self, batch: Batch) -> None:
        self._records_in += len(batch)
        self._write(self._chain.process(batch))
        self._mark_dirty()
        if self._writer.pending >= MUCH:
            self._commit()

    def _advance(self, watermark: int) -> None:
        self._watermark = watermark
        due = self._chain.advance(watermark)
        if due.values or self._transactions.active:
            self._write(due)
            self._mark_dirty()

    def _write(self, batch: Batch) -> None:
        self._records_out += len(batch)
        self._writer.write(batch)

    def _mark_dirty(self) -> None:
        if self._dirty_since is None:
            self._dirty_since = time.monotonic()

    def _keep_time(self) -> None:
        """Commits if one is due."""
        now = time.monotonic()
        if self._source is not None:
            self._tick()
        if self._wait(now) <= 0:
            self._commit()

    def _tick(self) -> None:
        """Moves a source's watermark to where no record that will be emitted can be."""
        clock = time.time_ns() // 1_000_000
        reached = clock - 1 if self._mailbox.empty else self._last_read - 1
        if reached > self._watermark:
            self._advance(reached)

    def _wait(self, now: float) -> float:
        """Seconds until a commit is due; 0 or less if one is."""
        settings = self._settings
        due = now + _FOREVER_S
        if self._dirty_since is not None:
            due = min(due, self._dirty_since + self._commits.pause)
        if self._position_since is not None:
            due = min(due, self._position_since + settings.idle_commit_interval_ms / 1000)
        if self._has_outputs and (self._source is not None or self._watermark > self._writer.told):
            due = min(due, self._told_at + self._ticks.pause)
        return due - now

    def _commit(self, *, ends: bool = False) -> None:
        """One transaction: output, changes of state, consumed offsets."""
        now = time.monotonic()
        tell_all = ends or (self._watermark > self._writer.told and now - self._told_at >= self._ticks.pause)
        for outgoing in self._writer.flush(self._watermark, ends=ends, tell_all=tell_all):
            self._transactions.send(outgoing.topic, outgoing.partition, outgoing.data)
        if tell_all:
            self._told_at = now
        if self._changelog is not None:
            for operator_id, operator in self._stateful.items():
                for change in operator.state.take_changes():
                    self._transactions.send(self._changelog, self._subtask, change, key=operator_id.encode())
        offsets: list[Any] = []
        if self._position_since is not None:
            progress = Progress(self._gate.positions, self._gate.ended_senders())
            offsets = progress.write(self._input_topics, self._subtask)
        if self._transactions.active or offsets:
            self._transactions.commit(offsets)
            took = time.monotonic() - now
            self._commits.committed(took)
            self._ticks.committed(took)
            self._commit_count += 1
            if ends or now - self._counted_at >= _COUNT_INTERVAL_S:
                self._counted_at = now
                self._notify(Counted(self._records_in, self._records_out, self._commit_count))
        self._dirty_since = None
        self._position_since = None
