"""One attempt of a subtask in one process, and the source of its input."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping, Sequence
from math import ceil
from typing import cast

from msgspec.structs import replace

from ....schemas.types import RestoredCheckpoint
from ...graph.chain import edge_type, output_type
from ...runtime.common.deployment import (
    CheckpointTrigger,
    SubtaskDeployment,
    VertexDeployment,
)
from ...runtime.common.failures import ProgressLostError, TaskError
from ...runtime.operators.chain import StatelessPipeline
from ...runtime.operators.factory import build_prefix
from ...runtime.operators.kafka_source_parameters import KafkaSourceParameters, StartingMode
from ...runtime.records.buffers import (
    MAX_WATERMARK,
    BufferCodec,
    BufferError,
    decode_header,
    is_opaque,
    without_records,
)
from ...runtime.spark.query import QueryMode
from ...runtime.spark.query_inputs import ReceivingSubtask, TopicQueryInput
from ...runtime.spark.record_forwarder import RecordForwardingPlan, RecordForwardingWorker
from ...runtime.stream_task.checkpoint.subtask_snapshot import PendingSubtaskSnapshot
from ...runtime.stream_task.input.barrier_handler import PendingCheckpoint
from ...runtime.stream_task.input.sources.source import UNTIL_WOKEN_S
from ...runtime.stream_task.loop.assembly import Assembly, KafkaInput
from ...runtime.stream_task.loop.slot_commit import SlotCommit
from ...runtime.stream_task.loop.subtask import Subtask
from ...runtime.stream_task.output.transaction import Transaction
from ...runtime.stream_task.restore.changelog_reader import restored_state
from ...runtime.stream_task.restore.group_offsets import CommittedGroupOffset
from ...runtime.stream_task.restore.in_flight import in_flight
from ...runtime.stream_task.restore.offset_resets import last_reset, positions_of, resets_to_apply
from ...runtime.stream_task.restore.progress_evidence import require_group
from ...runtime.stream_task.restore.restore_plan import plan_restore
from ...runtime.stream_task.state.fork_worker import ForkedWork
from ...runtime.stream_task.state.progress import SubtaskProgress
from .checkpoints import PartReporter
from .forwarded_records import ForwardedRecords
from .inline_writes import AtOnce, HeldBack
from .kafka import JointTransaction, MemoryTransaction, Message, Place
from .kafka_rows import kafka_rows
from .surroundings import CLUSTER, MemorySurroundings
from .transaction_watch import CHANNEL_CALLS, OPERATOR_CALLS, SOURCE_CALLS, watch


class MemoryAttempt:
    """Does the work of a StreamTask in steps: restores, takes input, commits, and writes its parts of checkpoints."""

    def __init__(
        self,
        cluster: MemorySurroundings,
        place: Place,
        number: int,
        *,
        restore: RestoredCheckpoint | None = None,
        finished: bool = False,
        checkpoints_over: int = 0,
        tell: PartReporter | None = None,
    ) -> None:
        vertex_id, index = place
        self._cluster = cluster
        self._tell = tell
        self._async_calls = cluster.create_async_calls()
        kafka = cluster.kafka
        deployment = VertexDeployment(
            CLUSTER, cluster.job_id, cluster.graph, vertex_id, (SubtaskDeployment("", index, number),)
        )
        self._transaction = MemoryTransaction(kafka, place, cluster.rng, lambda: cluster.now)
        self.assembly = Assembly(
            deployment,
            index,
            number,
            self._transaction,
            cluster.wall_clock,
            generation=cluster.generation,
            restore=restore,
            checkpoints_over=checkpoints_over,
            local_state=cluster.state_directories.assign(deployment),
            spark=cluster.spark,
            async_calls=self._async_calls,
        )
        self._restored = 0 if restore is None else restore.checkpoint_id
        self._restore_point = restore
        self._of_other_job = restore is not None and restore.generation < 0
        self._commits_first = False
        self._is_open = False
        self.finished = False
        self._next_discovery = cluster.now
        self._next_poll: int | None = None
        """The time at which the source has something to read; None: now, or it does not know (ms)."""
        self._parts: list[PendingSubtaskSnapshot] = []
        """On their way to storage."""
        self._changelog_offsets: dict[int, int] = {}
        """Where the changelog goes on behind a checkpoint, by its id."""
        self._index = index
        self._place = place
        if finished:
            self._end_again()
            return
        source = self.assembly.through_spark
        self._kafka_input = None if source is None else self._locate()
        self._topics = self.assembly.channel_topics if self._kafka_input is None else self._kafka_input.topics
        self._tail = kafka.tail(self.assembly.changelog, index)
        copy = kafka.group_answer(place, cluster.rng)
        require_group(self._tail, copy, self.assembly.changelog, index, cluster.generation, None)
        self._beginning = plan_restore(
            deployment,
            index,
            generation=cluster.generation,
            restore=restore,
            tail=self._tail,
            changelog=self.assembly.changelog,
            resets=cluster.offset_resets,
        )
        self.task: Subtask = self.assembly.subtask(
            self._progress(), self._kafka_input, begins=self._beginning.begins
        )
        if self._beginning.begins and self.task.channel_input is not None:
            self.task.channel_input.foreign.passes_below = {
                i: len(kafka.log(topic, index)) for i, topic in enumerate(self.assembly.channel_topics)
            }
        self._deployment = deployment
        self._writing: list[HeldBack] = []
        self._watch_cuts()
        self._write_here()
        self._restore()
        self._open_prefix(deployment)
        places = (
            [(i, index) for i in range(len(self._topics))]
            if self._kafka_input is None
            else list(self._kafka_input.places)
        )
        self._cursors = {
            place: self._handed_over_from(place, self.task.positions.get(place[0], {}).get(place[1], 0))
            for place in places
        }
        self.polls = self.assembly.parts.source is not None and source is None

    @property
    def is_new(self) -> bool:
        """Whether no attempt of the subtask has committed anything in this generation."""
        entry = self._tail.entry
        return entry is None or entry.generation != self._cluster.generation

    @property
    def transaction(self) -> MemoryTransaction:
        return self._transaction

    def open(self, process: MemoryProcess) -> bool:
        """Opens the attempt in its process. Returns whether it must commit before its first record."""
        self.process = process
        self._is_open = True
        self._watch_transactions(process.transaction)
        setup = None
        if self.polls:
            setup = replace(
                self.assembly.source_setup(self._cluster.wall_clock, lambda: None, self._cluster.pause),
                reads_ahead=False,
            )
        self.task.open(setup)
        if self._beginning.begins:
            self.task.begin_generation(in_flight(self._beginning, self._deployment, self._index))
        return self._beginning.begins or self._commits_first

    def _handed_over_from(self, place: tuple[int, int], position: int) -> int:
        """Returns the offset at which a query starts: earlier records may be missing, later ones never are."""
        start = self._cluster.kafka.starts.get((self._topics[place[0]], place[1]), 0)
        assert start <= position, (
            f"{self._topics[place[0]]} begins at {start}, and is to be read from {position}"
        )
        return max(start, self._cluster.handed_over_from(position))

    def _end_again(self) -> None:
        """Reports the end again: the subtask had finished in the checkpoint."""
        self.finished = True
        for buffer in self.assembly.writer().flush(ends=True, tell_all=True):
            self._transaction.send(buffer.topic, buffer.data, partition=buffer.partition)
        self._transaction.commit()

    def _progress(self) -> SubtaskProgress:
        """Returns the progress as stream_task.py and kafka_source_offsets.py compute it."""
        source, begins = self.assembly.through_spark, self._beginning.begins
        progress = SubtaskProgress.from_entry(self._tail.entry, self._topics, self._cluster.generation)
        if source is not None and begins:
            assert self._kafka_input is not None
            restored = self._beginning.kafka_positions(source.operator_id)
            places = self._kafka_input.places
            if restored is None or (self._of_other_job and self._kafka_source().resets_offsets):
                positions = {**dict.fromkeys(places, 0), **self._first_offsets()}
            else:
                positions = {(i, p): restored.get(self._topics[i], {}).get(p, 0) for i, p in places}
            progress = SubtaskProgress(positions)
        elif source is not None and self.is_new and (first := self._first_offsets()):
            self._commits_first = True  # later attempts must not see another `latest`
            progress = replace(progress, positions=first)
        if source is not None:
            progress = self._with_resets(progress, source.operator_id)
        return replace(progress, changelog_from=self._tail.end) if begins else progress

    def _with_resets(self, progress: SubtaskProgress, operator_id: str) -> SubtaskProgress:
        """Replaces the positions that were reset while the job was paused."""
        resets, entry = self._cluster.offset_resets, self._tail.entry
        restored = self._restore_point if self._beginning.begins else None
        due = resets_to_apply(resets, entry, self._cluster.generation, restored)
        new, own = positions_of(due, operator_id), self._kafka_input
        assert own is not None
        reset = {(i, p): new[self._topics[i], p] for i, p in own.places if (self._topics[i], p) in new}
        if own.ends is not None:
            reset = {place: min(offset, own.ends[place]) for place, offset in reset.items()}
        self._commits_first = self._commits_first or bool(due)
        return replace(
            progress, positions={**progress.positions, **reset}, reset_id=last_reset(resets, entry)
        )

    def _restore(self) -> None:
        """Restores the state in storage, then the changelog after it."""
        changelog, beginning = self.assembly.changelog, self._beginning
        if not self.assembly.keeps_state:
            return
        if beginning.storage is not None:
            parallelism = self.assembly.vertex.parallelism
            for pair in restored_state(beginning.storage, beginning.pieces, self._index, parallelism):
                self.task.state.restore(*pair)
        if beginning.continued is not None and self.task.state.writer is not None:
            self.task.state.writer.continue_from(beginning.continued, self._restored)
        if beginning.changelog_from is not None:
            kafka = self._cluster.kafka
            if beginning.changelog_from < kafka.starts.get((changelog, self._index), 0):
                raise ProgressLostError(f"{changelog} begins behind {beginning.changelog_from}")
            log = kafka.log(changelog, self._index)
            for offset in range(beginning.changelog_from, len(log)):
                place = f"{changelog} [{self._index}] at offset {offset}"
                self.task.state.replay(log[offset].key or b"", log[offset].value, lambda place=place: place)  # type: ignore[misc]

    @property
    def accumulators(self) -> Mapping[str, float]:
        """Returns the committed accumulators."""
        return self.assembly.accumulators.committed()

    def trigger(self, checkpoint: CheckpointTrigger) -> None:
        """Triggers a checkpoint at the subtask."""
        self.task.checkpoints.trigger(checkpoint)

    def confirm(self, checkpoint_id: int) -> None:
        """Confirms a checkpoint: the changelog below it is not needed any more, and is deleted now or later."""
        self.task.confirm(checkpoint_id)
        changelog, rng = self.assembly.changelog, self._cluster.rng
        offset = self._changelog_offsets.get(checkpoint_id, -1)
        if self.assembly.keeps_state and offset > 0 and rng is not None and rng.random() < 0.7:
            self._cluster.kafka.trim(changelog, self._index, offset)

    def abort_checkpoint(self, checkpoint_id: int) -> None:
        """Aborts a checkpoint."""
        self.task.abort(checkpoint_id)

    def _watch_cuts(self) -> None:
        """Makes the coordinator record the position of a cut in the sent messages."""
        tell, task = self._tell, self.task
        if tell is None:
            return
        cuts = task.checkpoints
        cut = cuts._take_snapshot

        def watched(pending: PendingCheckpoint) -> None:
            cut(pending)
            tell.cut(pending.number, self._transaction.sent + task.output.queued)

        cuts._take_snapshot = watched  # type: ignore[method-assign]

    def _watch_transactions(self, transaction: JointTransaction) -> None:
        """Checks the law of message_queue.py: no function that may call a user function runs while a transaction is
        open."""
        task = self.task
        for operator in task._chain.operators:
            watch(operator, OPERATOR_CALLS, transaction)
        for channel in task.output._writer.channels:
            watch(channel, CHANNEL_CALLS, transaction)
        if task._source is not None:
            watch(task._source[1], SOURCE_CALLS, transaction)

    def _write_here(self) -> None:
        """Writes state in this thread instead of another one, and as a slow child process does."""
        writer = self.task.state.writer
        if writer is None:
            return

        def start_work(work: ForkedWork) -> HeldBack:
            self._writing.append(HeldBack(work))
            return self._writing[-1]

        writer._fork = start_work
        writer._io.shutdown()
        writer._io = AtOnce()  # type: ignore[assignment]

    def _write_parts(self, rng: random.Random | None) -> None:
        """Writes parts to storage, sooner or later, or all of them at once."""
        assert self._tell is not None
        self._parts += self.task.checkpoints.take_snapshots()
        if self._writing and rng is not None and rng.random() < 0.2:
            self._writing.pop(0).release()
        for declined in self.task.checkpoints.take_declined_checkpoints():
            self._tell.declined(declined.checkpoint_id, declined.reason)
        while self._parts and (rng is None or rng.random() < 0.4):
            part = self._parts.pop(0)
            while self._writing:
                self._writing.pop(0).release()
            if not part.pending.is_aligned:
                self._changelog_offsets[part.checkpoint_id] = part.changelog_offset
            try:
                finished = part.finish()
            except TaskError as error:
                self._tell.declined(part.checkpoint_id, str(error))
            else:
                self._tell.acknowledged(part.checkpoint_id, *finished)

    def _locate(self) -> KafkaInput:
        """Returns the partitions of this subtask with their ends. Raises TaskError if a topic is missing."""
        source, logs = self._kafka_source(), self._cluster.kafka.logs
        topics = source.matching(name for name in logs if not name.startswith(f"{CLUSTER}."))
        for topic in topics:
            if topic not in logs:
                raise TaskError(
                    f"the Kafka source's topic {topic!r} does not exist: create it, or correct its name"
                )
        counts = {topic: len(logs[topic]) for topic in topics}
        parallelism = self.assembly.vertex.parallelism
        mine = [
            (topics.index(topic), partition)
            for topic, partition in source.assigned_partitions(counts, self._index, parallelism)
        ]
        ends = None
        if source.bounded or self._cluster.topics_end:
            ends = {(i, p): len(self._cluster.kafka.log(topics[i], p)) for i, p in mine}
        return KafkaInput(tuple(topics), ends, tuple(mine))

    def _kafka_source(self) -> KafkaSourceParameters:
        assert self.assembly.through_spark is not None
        return KafkaSourceParameters.from_config(self.assembly.through_spark)

    def _first_offsets(self) -> dict[tuple[int, int], int]:
        """Returns where a source that has read nothing yet begins."""
        assert self._kafka_input is not None
        starting, found = self._kafka_source().starting, {}
        for i, partition in self._kafka_input.places:
            topic = self._topics[i]
            log, start = self._cluster.kafka.log(topic, partition), starting.position(topic, partition)
            match start.mode:
                case StartingMode.LATEST:
                    found[i, partition] = len(log)
                case StartingMode.OFFSET:
                    found[i, partition] = start.offset or 0
                case StartingMode.TIMESTAMP:
                    after = (
                        n for n, each in enumerate(log) if each.timestamp_ms >= (start.timestamp_ms or 0)
                    )
                    found[i, partition] = next(after, len(log))
                case StartingMode.EARLIEST | StartingMode.COMMITTED:
                    pass
        return found

    def _open_prefix(self, deployment: VertexDeployment) -> None:
        prefix, source = self.assembly.parts.prefix, self.assembly.through_spark
        self._forwarder: RecordForwardingWorker | None = None
        if source is not None:
            plan = self._forwarding_plan(deployment)
            self._columns = plan.columns
            self._forwarder = plan.worker(ForwardedRecords(self.task))
            self._forwarder.open()
            prefix = ()
        types = [edge_type(deployment.job_graph, edge) for edge in deployment.inputs]
        self._line = build_prefix(prefix, *types[:1]) if prefix else StatelessPipeline(())
        self._line.open()
        self._reads = [BufferCodec(type_) for type_ in types] if prefix else []
        self._writes = BufferCodec(output_type(prefix[-1])) if prefix else None

    def _forwarding_plan(self, deployment: VertexDeployment) -> RecordForwardingPlan:
        """Returns what a worker of Spark does with the messages of the topics."""
        kafka = self._kafka_input
        assert kafka is not None
        positions: dict[int, dict[int, int]] = {}
        for i, partition in kafka.places:
            positions.setdefault(i, {})[partition] = 0
        ends = (
            None
            if kafka.ends is None
            else {i: {p: kafka.ends[i, p] for p in of} for i, of in positions.items()}
        )
        receiver = ReceivingSubtask(self._index, "", positions, ends, topics=kafka.topics)
        return TopicQueryInput(deployment, None).plan([receiver], QueryMode.BULK)

    def step(self, rng: random.Random | None) -> bool:
        """Does one action; returns whether there was any except waiting."""
        moved = self._await(rng)
        if all(task.room > 0 for task in self.process.subtasks):
            moved = (self.poll(rng) if self.polls else self._hand_over(rng)) or moved
        self.task.advance_clock(self._cluster.wall_clock() - 1)
        self.task.emit_marker()
        self._keep_up(rng)
        if self.task.ended:
            if not self.process.commits.can_commit:
                return moved
            self.task.finish()
            self.process.commits.commit()
            if self._tell is not None:
                self._write_parts(None)
            self.finished = True
            return True
        if rng is None or rng.random() < 0.4:
            moved = self._commit(rng) or moved
        if self._tell is not None:
            self._write_parts(rng)
        return moved

    def _keep_up(self, rng: random.Random | None) -> None:
        """Does now and then what follows commits: commit_followup.py."""
        committed = self.task.output.committed
        if rng is None or committed is None or rng.random() > 0.3:
            return
        entry, kafka = committed.entry, self._cluster.kafka
        copy = CommittedGroupOffset(entry.generation, committed.offset, entry.changelog_id)
        kafka.groups.setdefault(self._place, []).append(copy)
        if not self.assembly.keeps_state:
            kafka.trim(self.assembly.changelog, self._index, committed.offset)
        if self._kafka_input is None:
            for input_ in entry.inputs:
                kafka.trim(input_.topic, self._index, input_.first_unprocessed(self._index))

    def poll(self, rng: random.Random | None) -> bool:
        """Lets the source read some records."""
        limit = self._cluster.poll_limit if rng is None else rng.randint(1, 5)
        polled = self.task.poll(min(limit, self.task.room))
        self._next_poll = None
        if 0 < polled.wait_s < UNTIL_WOKEN_S:
            self._next_poll = self._cluster.wall_clock() + ceil(polled.wait_s * 1000)
        return polled.batch is not None

    @property
    def next_time(self) -> int | None:
        """Returns the time at which something is due (ms); None if nothing waits for a time."""
        clock = self.task.next_clock
        times = [self._next_poll, clock + 1 if clock < MAX_WATERMARK else None]
        return min((time for time in times if time is not None), default=None)

    def _await(self, rng: random.Random | None) -> bool:
        """Lets asynchronous operators go on. Returns whether one has results."""
        if not self.task.is_asynchronous:
            return False
        awaits = self.task.has_pending
        if awaits or not self._cluster.is_real_time:
            self._async_calls.turn(passes=rng is None or rng.random() < 0.5)
        if not self._async_calls.take_woken():
            return awaits and self._cluster.is_real_time
        self.task.on_woken()
        return True

    def _commit(self, rng: random.Random | None) -> bool:
        commits, everyone = self.process.commits, self.process.subtasks
        if commits.is_dirty:
            return bool(commits.commit(tell_all=everyone if rng is None or rng.random() < 0.3 else ()))
        if self.task.output.is_behind:
            return self.task.output.tell_time() or bool(commits.commit(tell_all=[self.task]))
        if self.task.output.repeats and self._cluster.repeats_now(rng):
            self.task.output.tell_time(again=True)
        return False

    def _discover(self) -> None:
        """Lets a Kafka source read partitions and topics that were added, at its interval."""
        kafka, now = self._kafka_input, self._cluster.wall_clock()
        if kafka is None or kafka.ends is not None or now < self._next_discovery:
            return
        interval_ms = self._kafka_source().discovery_ms
        if interval_ms is None:
            return
        self._next_discovery = now + interval_ms
        found = self._locate()
        added: dict[str, dict[int, int]] = {}
        known = {(self._topics[i], partition) for i, partition in self._cursors}
        for i, partition in found.places:
            if (found.topics[i], partition) not in known:
                added.setdefault(found.topics[i], {})[partition] = 0
        if not added:
            return
        self.task.add_partitions(added)
        self._topics = self.task.source_topics
        for topic, offsets in added.items():
            self._cursors |= dict.fromkeys(((self._topics.index(topic), p) for p in offsets), 0)
        self._kafka_input = KafkaInput(self._topics, None, tuple(self._cursors))
        self._close_prefix()
        self._open_prefix(self._deployment)

    def _hand_over(self, rng: random.Random | None) -> bool:
        """Hands over the next buffers of a channel, or records of a topic."""
        self._discover()
        ready = [
            place
            for place, cursor in self._cursors.items()
            if cursor < len(self._cluster.kafka.log(self._topics[place[0]], place[1]))
        ]
        news = False
        for place in ready if rng is None else ready and [rng.choice(ready)]:
            log = self._cluster.kafka.log(self._topics[place[0]], place[1])
            first = self._cursors[place]
            count = len(log) - first if rng is None else rng.randint(1, min(3, len(log) - first))
            self._cursors[place] = first + count
            if self._kafka_input is not None:
                self._take_records(place, first, log[first : first + count])
                news = True
            else:
                for offset, message in enumerate(log[first : first + count], first):
                    self._take_buffer(place, offset, message.value)
                    news = news or not is_soft(message.value)
        return news

    def _take_buffer(self, place: tuple[int, int], offset: int, data: bytes) -> None:
        if self._writes is not None and not is_opaque(data):
            try:
                header, batch = self._reads[place[0]].decode(data)
            except BufferError:
                data = without_records(data)
            else:
                made = self._line.process(batch)
                with self._line.with_declared_types():
                    data = self._writes.encode(header, made)
        self.task.receiver.take_buffer(*place, offset, data)

    def _take_records(self, place: tuple[int, int], first: int, messages: Sequence[Message]) -> None:
        position = self.task.positions.get(place[0], {}).get(place[1], 0)
        if first < position < first + len(messages):
            # A query begins at one place: what it hands over again has the same bounds, or begins at the position.
            self._cursors[place] = position
            return
        assert self._forwarder is not None
        rows = kafka_rows(messages, first, place[1], self._topics[place[0]])
        self._forwarder.take(rows.select(self._columns))
        self._forwarder.finish()

    def close(self) -> None:
        """Closes the attempt, also after an error."""
        if not hasattr(self, "task"):
            return
        with contextlib.ExitStack() as closing:
            closing.callback(self._async_calls.close)
            closing.callback(self._close_prefix)
            closing.callback(self.task.close)

    def _close_prefix(self) -> None:
        self._line.close()
        if self._forwarder is not None:
            self._forwarder.close()

    def crash(self) -> None:
        """Drops the memory of the process, except ticks in flight."""
        self._transaction.is_zombie = True
        if not self._is_open:
            return  # another attempt of its process has lost its progress before they were opened
        self.process.transaction.abort()
        for channel in self.task.output.channels:
            channel.local = None
        if not self.task.ended:
            self.task.output.tell_time(again=True)
        self._transaction.abort()
        with contextlib.suppress(Exception):
            self.close()


class MemoryProcess:
    """The attempts of subtasks that commit together; senders come first."""

    def __init__(self, attempts: Sequence[MemoryAttempt]) -> None:
        """Opens them."""
        self.transaction = JointTransaction([attempt.transaction for attempt in attempts])
        running = [attempt for attempt in attempts if not attempt.finished]
        self.subtasks = [attempt.task for attempt in running]
        self.commits = SlotCommit(self.subtasks, cast(Transaction, self.transaction))
        for receiver in running:
            for sender in running:
                receiver.assembly.connect(sender.assembly, sender.task, receiver.task, is_new=sender.is_new)
        begins = [attempt.open(self) for attempt in running]
        if any(begins):
            self.commits.commit(always=True)


def is_soft(data: bytes) -> bool:
    """Returns whether the bytes are a tick or a latency marker; also accepts bytes that are no buffer."""
    try:
        header = decode_header(data)
    except BufferError:
        return False
    return header.tick or header.marker
