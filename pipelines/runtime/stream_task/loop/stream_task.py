"""One attempt of one subtask: Flink's lifecycle (initialize state, open, run, close)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Consumer, TopicPartition
from msgspec.structs import replace

from ....graph.physical_plan import consumer_group, temporary_topics, transactional_id
from ...common.failures import ProgressLostError, describe_failure
from ...common.kafka_clients import TRANSACTION_TIMEOUT_MS, group_consumer, partition_consumer
from ...common.offset_bounds import bounds, require_offset
from ...common.protocol import (
    OpenTask,
    StateRestored,
    TaskCanceledNotice,
    TaskFailed,
    TaskFinished,
    TaskNotice,
    TaskOpened,
)
from ...common.settings import ExecutionMode, TaskSettings
from ...operators.kafka_source_parameters import KafkaSourceParameters
from ...spark.query import QueryMode
from ...spark.query_inputs import ReceivingSubtask, TopicQueryInput, create_query_input
from ..checkpoint.subtask_output import CommittedProgress
from ..input.direct_reader import DirectReader
from ..input.input_positions import InputPositions
from ..output.kafka_transaction import KafkaTransaction
from ..restore.changelog_reader import ChangelogTail, read_changelog, read_tail, restored_state
from ..restore.in_flight import in_flight
from ..restore.kafka_source_offsets import ResumedPositions, resolve_offsets
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
from .mailbox import Mailbox, TaskCanceled
from .mailbox_loop import MailboxLoop, WallClock
from .subtask import Subtask


class StreamTask:
    """One attempt. Call `invoke` once. `notify` is called from the same thread, or from another one while that
    thread hangs."""

    def __init__(
        self,
        opening: OpenTask,
        mailbox: Mailbox,
        notify: Callable[[TaskNotice], None],
        exit_lock: threading.Lock | None = None,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        timer: ActivityTimer | None = None,
    ) -> None:
        """`exit_lock` and `transaction_timeout_ms`: see KafkaTransaction. `timer` measures this attempt."""
        self._timer = timer or ActivityTimer()
        self._exit_lock = exit_lock
        self._transaction_timeout_ms = transaction_timeout_ms
        self._kafka = opening.kafka
        self._deployment = opening.deployment
        self._subtask = opening.subtask_index
        self._attempt = opening.attempt_number
        self._generation = opening.generation
        self._restore = opening.restore
        self._finished = opening.finished
        self._checkpoints_over = opening.checkpoints_over
        self._local_state = opening.local_state
        self._cache = opening.cache
        self._mailbox = mailbox
        self._notify = notify
        self._transactions: KafkaTransaction | None = None
        names = self._deployment.cluster, self._deployment.job_id
        self._group = consumer_group(*names, self._deployment.vertex_id, self._subtask)
        self._wall_clock = WallClock()

    def invoke(self) -> None:
        """Runs the attempt to its end, which is the last notice. Raises nothing."""
        last: TaskNotice
        try:
            if self._finished:
                self._end_again()
            else:
                self._work()
        except TaskCanceled:
            last = TaskCanceledNotice()
        except Exception as error:
            last = TaskFailed(describe_failure(error), isinstance(error, ProgressLostError))
        else:
            last = TaskFinished()
        if self._transactions is not None:
            self._transactions.abort()
        self._notify(last)

    def _work(self) -> None:
        assembly, subtask, beginning, first = self._prepare()
        upkeep = self._upkeep(assembly)
        if first.offset >= 0 or assembly.through_spark is not None:
            # Without a commit there is nothing to copy, and a client less competes with the start.
            upkeep.on_committed(first)
        settings = TaskSettings.from_configuration(self._deployment.job_graph.configuration)
        run = MailboxLoop(
            subtask,
            assembly,
            self._mailbox,
            settings,
            self._wall_clock,
            self._notify,
            upkeep,
            self._timer,
            self._direct_reading(subtask, settings.mode),
        )
        ended = False
        try:
            run.open()
            if beginning.begins:
                subtask.begin_generation(in_flight(beginning, self._deployment, self._subtask))
            self._notify(TaskOpened())
            run.run_until_ended()
            ended = True
        finally:
            upkeep.close(ended=ended)
            subtask.close()
            assembly.close()

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
            )

        return DirectReading(open_reader, from_the_start=not isinstance(input_, TopicQueryInput))

    def _hangs(self, reason: str) -> None:
        self._notify(TaskFailed(reason))
        os._exit(1)

    def _end_again(self) -> None:
        """Sends the end of the output again: the subtask had finished in the checkpoint that the job rolled back to."""
        assembly, transactions, consumer = self._assemble()
        consumer.close()
        transactions.open(assembly.changelog)
        for message in assembly.writer().flush(ends=True, tell_all=True):
            transactions.send(message.topic, message.data, partition=message.partition)
        if transactions.active:
            transactions.commit()

    def _assemble(self) -> tuple[Assembly, KafkaTransaction, Consumer]:
        """Creates the clients. They connect in the background; `transactions.open` fences older attempts."""
        deployment = self._deployment
        names = deployment.cluster, deployment.job_id
        consumer = group_consumer(self._kafka, self._group)
        transactions = self._transactions = KafkaTransaction(
            self._kafka,
            transactional_id(*names, deployment.vertex_id, self._subtask),
            self._hangs,
            self._exit_lock,
            self._transaction_timeout_ms,
            tuple(temporary_topics(*names, deployment.job_graph)),
            self._timer,
        )
        assembly = Assembly(
            deployment,
            self._subtask,
            self._attempt,
            transactions,
            self._wall_clock,
            generation=self._generation,
            restore=self._restore,
            checkpoints_over=self._checkpoints_over,
            local_state=self._local_state,
        )
        return assembly, transactions, consumer

    def _prepare(self) -> tuple[Assembly, Subtask, RestorePlan, CommittedProgress]:
        """Initialises the state: fences older attempts, reads progress, checkpoint and changelog, builds the
        operators.

        Also returns the progress entry that the attempt continues from, which an earlier attempt wrote.
        """
        assembly, transactions, consumer = self._assemble()
        changelog = assembly.changelog
        source = assembly.through_spark
        parameters = None if source is None else KafkaSourceParameters.from_config(source)
        evidence = ProgressEvidence(
            self._kafka,
            consumer,
            changelog,
            self._subtask,
            assembly.channel_topics,
            () if parameters is None or parameters.connection is not None else parameters.topics,
        )
        transactions.open(assembly.changelog)
        evidence.ask()
        tail = read_tail(consumer, changelog, self._subtask, evidence.end())
        ids = still_valid(tail.entry, self._generation, evidence.topic_ids(), changelog)
        copy = evidence.group_copy()
        require_group(tail, copy, changelog, self._subtask, self._generation, ids.get(changelog))
        beginning = plan_restore(
            self._deployment,
            self._subtask,
            generation=self._generation,
            restore=self._restore,
            tail=tail,
            changelog=changelog,
        )
        kafka, progress, resolved = self._progress(assembly, consumer, tail, beginning, ids)
        entry = self._entry(progress, assembly, kafka)
        if resolved:
            # Before the first record, and before anything is reported.
            transactions.send(
                assembly.changelog, encode_progress(entry), key=PROGRESS_KEY, partition=self._subtask
            )
            transactions.commit()
        subtask = assembly.subtask(progress, kafka, begins=beginning.begins)
        ends = (
            None
            if kafka is None or kafka.ends is None
            else InputPositions(kafka.ends).to_positions_by_input()
        )
        if beginning.begins:
            subtask.foreign.passes_below = {
                i: bounds(consumer, topic, self._subtask)[1]
                for i, topic in enumerate(assembly.channel_topics)
            }
        self._notify(
            StateRestored(os.getpid(), subtask.positions, ends, () if kafka is None else kafka.topics)
        )
        self._restore_state(assembly, subtask, beginning, consumer, is_new=tail.end == 0)
        consumer.close()
        return assembly, subtask, beginning, CommittedProgress(entry, tail.offset)

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
                )
            finally:
                if theirs is not consumer:
                    theirs.close()
            kafka = KafkaInput(reading.topics, reading.ends, tuple(reading.positions))
            progress, resolved = SubtaskProgress(reading.positions), reading.resolved
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
