"""One attempt of one subtask in its process: it restores its state, and builds what the process drives.

task_group.py has the lifecycle of the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from msgspec.structs import replace

from .....schemas.types import OffsetsReset
from ....graph.physical_plan import consumer_group
from ...common.kafka_clients import group_consumer, partition_consumer
from ...common.offset_bounds import bounds, require_offset
from ...common.protocol import OpenTasks, StateRestored, TaskNotice
from ...common.settings import ExecutionMode, TaskSettings
from ...operators.kafka_source_parameters import KafkaSourceParameters
from ...spark.file_client import SparkFileClient
from ...spark.query import QueryMode
from ...spark.query_inputs import ReceivingSubtask, TopicQueryInput, create_query_input
from ..checkpoint.subtask_output import CommittedProgress
from ..input.direct_reader import DirectReader
from ..input.input_positions import InputPositions
from ..output.kafka_transaction import KafkaTransaction
from ..restore.changelog_reader import ChangelogTail, read_changelog, read_tail, restored_state
from ..restore.in_flight import in_flight
from ..restore.kafka_source_offsets import ResumedPositions, resolve_offsets
from ..restore.offset_resets import last_reset, positions_of, resets_to_apply
from ..restore.progress_evidence import ProgressEvidence, require_group
from ..restore.restore_plan import RestorePlan, plan_restore
from ..restore.topic_ids import recreated_topics, still_valid
from ..state.progress import ProgressWriter, SubtaskProgress
from ..state.progress_entry import KEY as PROGRESS_KEY
from ..state.progress_entry import ProgressEntry, encode_progress
from .activity_timer import ActivityTimer
from .assembly import Assembly, KafkaInput
from .commit_followup import CommitFollowUp
from .direct_reading import DirectReading
from .event_loop_thread import EventLoopThread, TaskAsyncCalls
from .mailbox import Mailbox
from .subtask import Subtask
from .task_driver import TaskDriver


class StreamTask:
    """One attempt: it restores itself, and gets its driver. Close it in any case.

    `transaction` is that of the process. `notify` is called from the task thread and from another one.
    """

    def __init__(
        self,
        opening: OpenTasks,
        number: int,
        transaction: KafkaTransaction,
        mailbox: Mailbox,
        notify: Callable[[TaskNotice], None],
        wall_clock: Callable[[], int],
        timer: ActivityTimer,
        event_loop: EventLoopThread,
    ) -> None:
        """Creates the clients, which connect in the background. `number`: the index of the task in the process."""
        self.number = number
        self._timer = timer
        self._kafka = opening.kafka
        self._deployment = opening.deployment(number)
        opened = opening.tasks[number]
        subtask = opened.subtask
        self._subtask = subtask.subtask_index
        self._attempt = subtask.attempt_number
        self._generation = subtask.generation
        self._restore = subtask.restore
        self._resets = subtask.offset_resets
        self.is_finished = subtask.finished
        """Whether the subtask had finished in the checkpoint that the job rolled back to: it only sends its end."""
        self._cache = opening.cache
        self._mailbox = mailbox
        self._notify = notify
        self._transaction = transaction
        self._wall_clock = wall_clock
        names = self._deployment.cluster, self._deployment.job_id
        self._group = consumer_group(*names, self._deployment.vertex_id, self._subtask)
        self.assembly = Assembly(
            self._deployment,
            self._subtask,
            self._attempt,
            transaction,
            wall_clock,
            generation=self._generation,
            restore=self._restore,
            checkpoints_over=subtask.checkpoints_over,
            local_state=opened.local_state,
            spark=None if opening.cache is None else SparkFileClient(Path(opening.cache)),
            async_calls=TaskAsyncCalls(event_loop, mailbox, number),
        )
        self._reading = None if self.is_finished else self._open_consumer()
        """What the attempt reads its progress with; None: it reads none."""
        self._subtask_of_attempt: Subtask | None = None
        self._beginning: RestorePlan | None = None
        self._driver: TaskDriver | None = None
        self.is_new = True
        """Whether no attempt of the subtask has committed anything in this generation."""

    @property
    def subtask(self) -> Subtask:
        """The subtask, after `restore`."""
        assert self._subtask_of_attempt is not None
        return self._subtask_of_attempt

    def on_fenced(self) -> None:
        """Called when older attempts are fenced: they write nothing more."""
        if self._reading is not None:
            self._reading[1].ask()

    def _open_consumer(self) -> tuple[Consumer, ProgressEvidence]:
        consumer = group_consumer(self._kafka, self._group)
        source = self.assembly.through_spark
        parameters = None if source is None else KafkaSourceParameters.from_config(source)
        evidence = ProgressEvidence(
            self._kafka,
            consumer,
            self.assembly.changelog,
            self._subtask,
            self.assembly.channel_topics,
            () if parameters is None or parameters.connection is not None else parameters.topics,
        )
        return consumer, evidence

    def send_end(self) -> None:
        """Sends the end of the output again, for a subtask that had finished."""
        for message in self.assembly.writer().flush(ends=True, tell_all=True):
            self._transaction.send(message.topic, message.data, partition=message.partition)
        if self._transaction.active:
            self._transaction.commit()

    def restore(self) -> TaskDriver:
        """Restores the subtask, and returns its driver. Raises TaskError, UserCodeError."""
        first = self._prepare()
        subtask, assembly = self.subtask, self.assembly
        upkeep = self._upkeep(assembly)
        if first.offset >= 0 or assembly.through_spark is not None:
            # Without a commit there is nothing to copy, and a client less competes with the start.
            upkeep.on_committed(first)
        settings = TaskSettings.from_configuration(self._deployment.job_graph.configuration)
        self._driver = TaskDriver(
            subtask,
            assembly,
            self._mailbox,
            settings,
            self._wall_clock,
            self._notify,
            upkeep,
            self._timer,
            self._direct_reading(subtask, settings.mode),
            self.number,
        )
        return self._driver

    def begin_generation(self) -> bool:
        """Lets the attempt process records in flight, if it begins the generation. Returns whether it does: then the
        caller commits."""
        beginning = self._beginning
        assert beginning is not None
        if beginning.begins:
            self.subtask.begin_generation(in_flight(beginning, self._deployment, self._subtask))
        return beginning.begins

    def close(self) -> None:
        """Closes what is open, once. Raises UserCodeError."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()

    def _upkeep(self, assembly: Assembly) -> CommitFollowUp:
        source = assembly.through_spark
        parameters = None if source is None else KafkaSourceParameters.from_config(source)
        return CommitFollowUp(
            self._kafka,
            assembly.changelog,
            self._subtask,
            self._group,
            keeps_state=assembly.keeps_state,
            channels=() if source is not None else assembly.channel_topics,
            shared_group=None if parameters is None else parameters.group_id,
            source_kafka=None if parameters is None else parameters.connection,
        )

    def _direct_reading(self, subtask: Subtask, mode: ExecutionMode) -> DirectReading:
        """Returns how the task reads its input while no query delivers it.

        Whether a query reads a Kafka source in real time depends on its lag, which the TaskExecutor measures.
        """
        deployment = self._deployment
        input_ = create_query_input(deployment, self._cache)
        if input_ is None or mode is not ExecutionMode.REAL_TIME:
            return DirectReading()
        kafka = input_.connection or self._kafka

        def open_reader(number: int) -> DirectReader:
            receiver = ReceivingSubtask(
                self._subtask,
                "",
                subtask.positions,
                attempt_number=self._attempt,
                topics=subtask.source_topics,
            )
            return DirectReader(
                number,
                input_.begin([receiver]),
                input_.plan([receiver], QueryMode.REAL_TIME),
                lambda: partition_consumer(kafka, self._group),
                self._mailbox,
                self.number,
            )

        return DirectReading(open_reader, from_the_start=not isinstance(input_, TopicQueryInput))

    def _prepare(self) -> CommittedProgress:
        """Reads progress, checkpoint and changelog, and builds the operators.

        Returns the progress entry that the attempt continues from, which an earlier attempt wrote.
        """
        assert self._reading is not None
        assembly, transactions, (consumer, evidence) = self.assembly, self._transaction, self._reading
        changelog = assembly.changelog
        tail = read_tail(consumer, changelog, self._subtask, evidence.end())
        self.is_new = tail.entry is None or tail.entry.generation != self._generation
        ids = still_valid(tail.entry, self._generation, evidence.topic_ids(), changelog)
        copy = evidence.group_copy()
        require_group(tail, copy, changelog, self._subtask, self._generation, ids.get(changelog))
        beginning = self._beginning = plan_restore(
            self._deployment,
            self._subtask,
            generation=self._generation,
            restore=self._restore,
            tail=tail,
            changelog=changelog,
            resets=self._resets,
        )
        kafka, progress, resolved = self._progress(assembly, consumer, tail, beginning, ids)
        entry = self._entry(progress, assembly, kafka)
        if resolved:
            # Before the first record, and before anything is reported.
            transactions.send(
                assembly.changelog, encode_progress(entry), key=PROGRESS_KEY, partition=self._subtask
            )
            transactions.commit()
        subtask = self._subtask_of_attempt = assembly.subtask(
            progress, kafka, begins=beginning.begins, is_rescaled=beginning.is_rescaled
        )
        ends = (
            None
            if kafka is None or kafka.ends is None
            else InputPositions(kafka.ends).to_positions_by_input()
        )
        if beginning.begins and subtask.channel_input is not None:
            subtask.channel_input.foreign.passes_below = {
                i: bounds(consumer, topic, self._subtask)[1]
                for i, topic in enumerate(assembly.channel_topics)
            }
        self._notify(
            StateRestored(os.getpid(), subtask.positions, ends, () if kafka is None else kafka.topics)
        )
        self._restore_state(assembly, subtask, beginning, consumer, is_new=tail.end == 0)
        consumer.close()
        return CommittedProgress(entry, tail.offset)

    def _progress(
        self,
        assembly: Assembly,
        consumer: Consumer,
        tail: ChangelogTail,
        beginning: RestorePlan,
        ids: Mapping[str, str],
    ) -> tuple[KafkaInput | None, SubtaskProgress, bool]:
        """Returns the progress that the attempt continues from, and whether it must be committed before the first
        record."""
        kafka, resolved = None, False
        if (source := assembly.through_spark) is not None:
            parameters = KafkaSourceParameters.from_config(source)
            other = parameters.connection
            theirs = consumer if other is None else group_consumer(other, self._group)
            try:
                reading = resolve_offsets(
                    theirs,
                    other or self._kafka,
                    parameters,
                    self._subtask,
                    assembly.vertex.parallelism,
                    generation=self._generation,
                    entry=tail.entry,
                    resumption=ResumedPositions(
                        beginning.kafka_positions(source.operator_id),
                        of_other_job=self._restore is not None and self._restore.generation < 0,
                    )
                    if beginning.begins
                    else None,
                    reset=positions_of(self._resets_to_apply(tail, beginning), source.operator_id),
                )
            finally:
                if theirs is not consumer:
                    theirs.close()
            kafka = KafkaInput(reading.topics, reading.ends, tuple(reading.positions))
            last = last_reset(self._resets, tail.entry)
            progress, resolved = SubtaskProgress(reading.positions, reset_id=last), reading.resolved
        else:
            topics = assembly.channel_topics
            progress = SubtaskProgress.from_entry(tail.entry, topics, self._generation)
            begin = {(i, self._subtask): 0 for i in range(len(topics))}
            progress = replace(progress, positions=begin | dict(progress.positions))
            if tail.entry is not None or beginning.begins:
                progress = self._checked(consumer, topics, progress, beginning, tail.entry, ids)
            progress = replace(progress, topic_ids=tuple(map(ids.get, topics)))
            # All progress of a source without inputs is state: the entry only records that it has begun.
            resolved = tail.entry is None and not topics and not beginning.begins
        return kafka, self._placed(progress, tail, beginning, ids.get(assembly.changelog)), resolved

    def _resets_to_apply(self, tail: ChangelogTail, beginning: RestorePlan) -> Sequence[OffsetsReset]:
        restored = self._restore if beginning.begins else None
        return resets_to_apply(self._resets, tail.entry, self._generation, restored)

    def _placed(
        self, progress: SubtaskProgress, tail: ChangelogTail, beginning: RestorePlan, changelog_id: str | None
    ) -> SubtaskProgress:
        """Adds the changelog that the progress is written to, and the offset at which the generation begins there."""
        entry = tail.entry
        if beginning.begins:
            begin = tail.end
        else:
            begin = 0 if entry is None or entry.generation != self._generation else entry.changelog_from
        return replace(progress, changelog_id=changelog_id, changelog_from=begin)

    def _entry(
        self, progress: SubtaskProgress, assembly: Assembly, kafka: KafkaInput | None
    ) -> ProgressEntry:
        topics = assembly.channel_topics if kafka is None else kafka.topics
        positions = InputPositions(progress.positions, progress.held)
        ends = None if kafka is None else kafka.ends
        return ProgressWriter(progress, topics, self._generation, positions, ends=ends).entry()

    def _checked(
        self,
        consumer: Consumer,
        topics: Sequence[str],
        progress: SubtaskProgress,
        beginning: RestorePlan,
        entry: ProgressEntry | None,
        ids: Mapping[str, str],
    ) -> SubtaskProgress:
        """Returns the progress with positions that the channels have. A new generation reads a recreated channel
        from its first message."""
        positions = dict(progress.positions)
        anew = recreated_topics(entry, ids)
        for i, topic in enumerate(topics):
            position = positions[i, self._subtask]
            if not beginning.begins:
                unprocessed = min([position, *progress.held.get((i, self._subtask), ())])
                require_offset(consumer, topic, self._subtask, unprocessed)
                continue
            low, high = bounds(consumer, topic, self._subtask)
            holds = low <= position <= high and topic not in anew
            positions[i, self._subtask] = position if holds else low
        return replace(progress, positions=positions)

    def _restore_state(
        self,
        assembly: Assembly,
        subtask: Subtask,
        beginning: RestorePlan,
        consumer: Consumer,
        *,
        is_new: bool,
    ) -> None:
        """`is_new`: whether nothing was ever written to the changelog."""
        changelog = assembly.changelog
        if not assembly.keeps_state:
            return
        storage = beginning.storage
        if storage is not None:
            parallelism = assembly.vertex.parallelism
            for key, message in restored_state(storage, beginning.pieces, self._subtask, parallelism):
                subtask.state.restore(key, message)
        if beginning.continued is not None and subtask.state.writer is not None:
            restored = 0 if self._restore is None else self._restore.checkpoint_id
            subtask.state.writer.continue_from(beginning.continued, restored)
        if beginning.changelog_from is not None and not (is_new and beginning.changelog_from == 0):

            def place() -> str:
                """Returns the location of the message that was read last."""
                (after,) = consumer.position([TopicPartition(changelog, self._subtask)])
                return f"{changelog} [{self._subtask}] at offset {after.offset - 1}"

            for key, message in read_changelog(consumer, changelog, self._subtask, beginning.changelog_from):
                subtask.state.replay(key, message, place)
