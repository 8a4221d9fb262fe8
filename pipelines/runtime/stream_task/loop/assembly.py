"""Builds a Subtask from a deployment: operators, channels, gate and source, connected as in the job graph."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .....schemas.types import JobEdge, OperatorConfig, RestoredCheckpoint
from ....checkpoint.compatibility import ALIGNED
from ....graph.chain import edge_type, input_types, output_type, source_operator
from ....graph.execution_graph import IntermediateResult
from ....graph.key_groups import key_groups_of_subtask
from ....graph.operators import traits_of
from ....graph.physical_plan import changelog_topic, channel_topic, keeps_state
from ....types import load_classes
from ...common.deployment import VertexDeployment, vertex_of
from ...common.event_time import event_time_edges
from ...common.local_state import LocalState
from ...common.settings import TaskSettings
from ...common.vertex_parts import VertexParts, split_vertex
from ...operators.async_calls import AsyncCalls
from ...operators.chain import OperatorChain
from ...operators.factory import build_operator
from ...operators.lazy_prefix import LazyPrefix
from ...operators.local_input import LocalInput
from ...operators.operator import OperatorSetup
from ...operators.task_context import TaskContext
from ...operators.user_functions import user_code
from ...operators.watermarks import WatermarkGenerator
from ...records.buffers import BufferCodec
from ...spark.file_requests import SparkFiles
from ...state_backend.accumulators import Accumulators
from ...state_backend.entry_store import EntryStore, open_heap_store
from ..checkpoint.subtask_snapshot import SubtaskId
from ..input.fragments import FragmentAssembler
from ..input.input_gate import InputGate
from ..input.input_positions import InputPositions
from ..input.record_locations import RecordLocations
from ..input.sources.build import build_source
from ..input.sources.source import Source, SourceSetup
from ..latency_tracker import LatencyTracker
from ..output.local_channel import LocalChannel, LocalReceiver
from ..output.message_queue import OutgoingMessageQueue
from ..output.partitioners import create_partitioner
from ..output.record_writer import ChannelWriter, RecordWriter
from ..output.transaction import Transaction
from ..state.fork_worker import ForkedWork, ForkedWorker
from ..state.full_snapshot import FullSnapshotWrite
from ..state.progress import ProgressWriter, SubtaskProgress
from ..state.state_writer import StateWriter
from .subtask import Subtask

if TYPE_CHECKING:
    from ...state_backend.rocksdb_database import RocksDatabase


class KafkaInput(msgspec.Struct, frozen=True):
    """The topics and positions that a subtask of a Kafka source reads."""

    topics: tuple[str, ...]
    """By index of the input."""
    ends: Mapping[tuple[int, int], int] | None = None
    """For a bounded source: the end offset of each (input, partition), also of empty ones."""
    places: tuple[tuple[int, int], ...] = ()
    """Every (input, partition) to read."""


class Assembly:
    """Builds the parts of one attempt of one subtask. Raises ValueError or LookupError for an invalid graph."""

    def __init__(
        self,
        deployment: VertexDeployment,
        subtask: int,
        attempt: int,
        transaction: Transaction,
        wall_clock: Callable[[], int],
        *,
        generation: int = 0,
        restore: RestoredCheckpoint | None = None,
        checkpoints_over: int = 0,
        local_state: LocalState | None = None,
        spark: SparkFiles | None = None,
        async_calls: AsyncCalls | None = None,
    ) -> None:
        """`local_state`: where keyed state is; None: in memory. `spark`: reads and writes files. `async_calls`: for
        asynchronous operators."""
        self.generation = generation
        own = 0 if restore is None or restore.generation < 0 else restore.checkpoint_id
        self._checkpoints_over = max(own, checkpoints_over)
        self.vertex = deployment.vertex
        self.parts: VertexParts = split_vertex(self.vertex, deployment.outputs)
        self._deployment = deployment
        self._graph = deployment.job_graph
        self._subtask = subtask
        self._attempt = attempt
        self._transaction = transaction
        self._queue = OutgoingMessageQueue()
        self._wall_clock = wall_clock
        self._settings = TaskSettings.from_configuration(self._graph.configuration)
        self._timed = event_time_edges(self._graph)
        self.accumulators = Accumulators()
        self._contexts: list[TaskContext] = []
        self._local_state = local_state
        self._spark = spark
        self._async_calls = async_calls
        self._database: RocksDatabase | None = None
        names = deployment.cluster, deployment.job_id
        self.changelog = changelog_topic(*names, self.vertex.vertex_id)
        self.keeps_state = keeps_state(self.vertex)
        """Whether the changelog contains more than progress."""
        self.channel_topics = tuple(channel_topic(*names, edge.data_set_id) for edge in deployment.inputs)
        """By index of the input."""

    @property
    def through_spark(self) -> OperatorConfig | None:
        """Returns the source of the vertex if a Spark query reads it, else None."""
        source = self.parts.source
        return source if source is not None and traits_of(source.kind).through_spark else None

    def subtask(
        self,
        progress: SubtaskProgress,
        kafka: KafkaInput | None = None,
        *,
        begins: bool = False,
        is_rescaled: bool = False,
    ) -> Subtask:
        """Builds the subtask; its state is not restored yet. `begins`: whether the attempt begins the generation.
        `is_rescaled`: whether it does so from a checkpoint of another parallelism.

        Raises UserCodeError if functions cannot be loaded.
        """
        deployment, parts = self._deployment, self.parts
        operators = [build_operator(self._setup(config, is_rescaled=is_rescaled)) for config in parts.rest]
        if self.keeps_state:
            # Before state, whose objects then have the classes of this program (`class_identity.py`).
            for config in parts.rest:
                with user_code(config):
                    for record_type in (*input_types(self._graph, self.vertex, config), output_type(config)):
                        load_classes(record_type)
        writer = self.writer()
        channels = writer.channels
        outputs = [
            (source_operator(self.vertex, edge).operator_id, edge.output_tag, channel)
            for edge, channel in zip(deployment.outputs, channels, strict=True)
        ]
        generator = None if parts.strategy is None else WatermarkGenerator(self._setup(parts.strategy))
        chain = OperatorChain(parts.rest, operators, outputs, parts.before_rest, generator)
        if kafka is not None:
            chain.read_splits(kafka.places)
        source: tuple[str, Source] | None = None
        if parts.source is not None and kafka is None:
            source = parts.source.operator_id, build_source(parts.source, parts.head)
        through_spark = self.through_spark
        # A restarted TaskExecutor may run an attempt again under its number.
        incarnation = secrets.token_hex(4)
        name = f"{self.vertex.vertex_id}-{self._subtask}-{self._attempt}-{incarnation}"
        positions = InputPositions(progress.positions, progress.held)
        gate = self._gate(progress, begins) if parts.source is None else None
        ends = None if kafka is None else kafka.ends
        topics = list(self.channel_topics if kafka is None else kafka.topics)
        sent = [edge_type(self._graph, edge) for edge in deployment.inputs]
        prefix = LazyPrefix(parts.prefix, sent[0]) if sent else LazyPrefix()
        subtask = Subtask(
            chain=chain,
            writer=writer,
            transaction=self._transaction,
            queue=self._queue,
            accumulators=self.accumulators,
            subtask_index=self._subtask,
            changelog=self.changelog,
            keeps_state=self.keeps_state,
            input_topics=topics,
            codecs=self.codecs(kafka),
            operator_inputs=[edge.input_index for edge in deployment.inputs],
            positions=positions,
            progress=ProgressWriter(progress, topics, self.generation, positions, gate, ends),
            gate=gate,
            source=source,
            ends=ends,
            owner=SubtaskId(
                self.vertex.operators[0].operator_id,
                self._subtask,
                self.generation,
                name,
                parts.behind,
                tuple(codec.record_type for codec in self.codecs(kafka)),
            ),
            places=RecordLocations(topics, self._subtask, parts.prefix),
            kafka_source=None if through_spark is None else through_spark.operator_id,
            reads_nothing=kafka is not None and not kafka.places,
            checkpoints_over=self._checkpoints_over,
            fragments=FragmentAssembler([BufferCodec(of) for of in sent], self.codecs(kafka), prefix),
            aligned_inputs=frozenset(
                i for i, edge in enumerate(deployment.inputs) if edge.partitioner in ALIGNED
            ),
            latencies=self._latency_tracker(),
        )
        if self.keeps_state:
            subtask.state.writer = StateWriter(
                subtask.state.by_id,
                key_groups_of_subtask(self._subtask, self.vertex.max_parallelism, self.vertex.parallelism),
                incremental=self._settings.periodic_checkpoints,
                name=name,
                fork=self._fork,
            )
        return subtask

    def connect(
        self,
        sender: Assembly,
        sending: Subtask,
        receiving: Subtask,
        called: LocalReceiver | None = None,
        *,
        is_new: bool,
    ) -> None:
        """Connects this assembly's subtask with a sender of the same index in the same process. `called`: how it is
        called. `is_new`: no attempt of the sender has sent anything in this generation."""
        channels = {
            edge.data_set_id: channel
            for edge, channel in zip(sender._deployment.outputs, sending.output.channels, strict=True)
        }
        for i, edge in enumerate(self._deployment.inputs):
            channel = channels.get(edge.data_set_id)
            if channel is not None and self._subtask in self._result(edge).partitions_for(self._subtask):
                receiver = receiving.receiver
                channel.local = LocalChannel(self._subtask, called or receiver, i, is_new=is_new)
                receiver.local_channels[i, self._subtask] = channel.local
                operator = source_operator(sender.vertex, edge)
                receiver.local_inputs[i] = LocalInput(operator, edge.output_tag, receiver.prefix)

    def writer(self) -> RecordWriter:
        """Builds the writer for the outgoing edges, in the order of VertexDeployment.outputs."""
        channels = [self._channel_writer(edge) for edge in self._deployment.outputs]
        for edge, channel in zip(self._deployment.outputs, channels, strict=True):
            channel.sender = source_operator(self.vertex, edge)
        return RecordWriter(channels)

    def _latency_tracker(self) -> LatencyTracker | None:
        """Builds what measures latencies; None if the job measures none."""
        settings, source = self._settings, self.parts.source
        if not settings.latency_interval_ms:
            return None
        return LatencyTracker(
            operator_id=self.vertex.operators[0].operator_id,
            source_subtask=None if source is None else self._subtask,
            interval_ms=settings.latency_interval_ms,
            granularity=settings.latency_granularity,
            wall_clock=self._wall_clock,
        )

    def source_setup(
        self, wall_clock: Callable[[], int], wake: Callable[[], None], pause: Callable[[float], None]
    ) -> SourceSetup:
        """Builds the environment of a source that the subtask reads itself."""
        source = self.parts.source
        assert source is not None
        return SourceSetup(source, self.context(source), wall_clock, wake, self._spark, pause=pause)

    def metrics(self) -> Mapping[str, float]:
        """Returns the metrics of functions: operator.name -> value."""
        return {
            f"{context.operator_name}.{name}": value
            for context in self._contexts
            for name, value in context.metrics.values().items()
        }

    def database_figures(self) -> Mapping[str, int]:
        """Returns the figures of the database of keyed state; empty if there is none."""
        return {} if self._database is None else self._database.figures()

    def context(self, config: OperatorConfig) -> TaskContext:
        """Builds the runtime context of an operator's functions."""
        made = TaskContext(
            job_id=self._deployment.job_id,
            job_name=self._graph.name,
            operator_name=config.name,
            subtask_index=self._subtask,
            parallelism=self.vertex.parallelism,
            max_parallelism=self.vertex.max_parallelism,
            attempt_number=self._attempt,
            accumulators=self.accumulators,
        )
        self._contexts.append(made)
        return made

    def _setup(self, config: OperatorConfig, *, is_rescaled: bool = False) -> OperatorSetup:
        return OperatorSetup(
            config=config,
            context=self.context(config),
            cluster=self._deployment.cluster,
            job_id=self._deployment.job_id,
            send=self._queue.send,
            require_topic=self._transaction.require_topic,
            input_types=input_types(self._graph, self.vertex, config),
            wall_clock=self._wall_clock,
            generation=self.generation,
            is_rescaled=is_rescaled,
            open_store=open_heap_store if self._local_state is None else self._open_store,
            spark=self._spark,
            async_calls=self._async_calls,
        )

    def _open_store(self, operator_id: str, max_parallelism: int) -> EntryStore:
        # They are loaded only where they are used.
        from ...state_backend.rocksdb_database import RocksDatabase
        from ...state_backend.rocksdb_store import open_store

        if self._database is None:
            assert self._local_state is not None
            self._database = RocksDatabase(Path(self._local_state.directory), self._local_state.memory)
        return open_store(self._database, operator_id, max_parallelism)

    def _fork(self, work: ForkedWork) -> FullSnapshotWrite:
        if self._database is None:
            return ForkedWorker(work)
        from ..state.store_fork import fork_with_database

        return fork_with_database(self._database, work)

    def close(self) -> None:
        """Closes the database of keyed state, if there is one, and removes its directory."""
        if self._database is not None:
            self._database.close()

    def _gate(self, progress: SubtaskProgress, begins: bool) -> InputGate:
        senders = [self._result(edge).producers_for(self._subtask) for edge in self._deployment.inputs]
        ended = progress.ended or (frozenset(),) * len(senders)
        return InputGate(senders, ended, self.generation, begins=begins)

    def codecs(self, kafka: KafkaInput | None = None) -> list[BufferCodec]:
        """Builds the codec of each input, for the data that Spark forwards: records as they arrived, or the output
        of the stateless prefix."""
        before = self.parts.before_rest
        if kafka is not None:
            assert before is not None
            return [BufferCodec(output_type(before))] * len(kafka.topics)
        if before is not None:
            return [BufferCodec(output_type(before))] * len(self._deployment.inputs)
        return [BufferCodec(edge_type(self._graph, edge)) for edge in self._deployment.inputs]

    def _channel_writer(self, edge: JobEdge) -> ChannelWriter:
        result = self._result(edge)
        record_type = edge_type(self._graph, edge)
        reachable = result.partitions_for(self._subtask)
        target = vertex_of(self._graph, edge.target_vertex_id)
        return ChannelWriter(
            channel_topic(self._deployment.cluster, self._deployment.job_id, edge.data_set_id),
            record_type,
            create_partitioner(
                edge,
                record_type,
                reachable=reachable,
                partitions=target.parallelism,
                max_parallelism=target.max_parallelism,
                subtask=self._subtask,
            ),
            reachable,
            subtask=self._subtask,
            attempt=self._attempt,
            generation=self.generation,
            timed=edge.data_set_id in self._timed,
        )

    def _result(self, edge: JobEdge) -> IntermediateResult:
        source = vertex_of(self._graph, edge.source_vertex_id).parallelism
        target = vertex_of(self._graph, edge.target_vertex_id).parallelism
        return IntermediateResult(edge, source, target, range(source))
