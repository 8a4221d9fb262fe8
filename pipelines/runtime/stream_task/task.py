"""One attempt of one subtask: document 002's lifecycle (initialise state, open, run, close)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Consumer, TopicPartition
from msgspec.structs import replace

from ...graph.physical_plan import channel_topic, consumer_group, output_topic, transactional_id
from ..buffers import END_OF_TIME
from ..deployment import VertexDeployment
from ..failures import ProgressLost, describe
from ..kafka_source import KafkaSource
from ..protocol import (
    Canceled,
    Failed,
    Finished,
    Notice,
    Open,
    Opened,
    Positions,
    Restored,
)
from ..settings import Settings
from .assembly import Assembly, KafkaInput
from .beginning import Beginning, beginning_of, in_flight
from .kafka import TRANSACTION_TIMEOUT_MS, group_consumer
from .kafka_reading import Resumption, settle
from .mailbox import Mailbox, TaskCanceled
from .positions import InputPositions
from .progress import Progress, of_generation, write_ids
from .reach import bounds, require_offset
from .restore import read_changelog, read_committed, restored_state
from .run import Run, WallClock
from .subtask import Subtask
from .topic_ids import TopicIds, is_anew, still_valid
from .transaction import ConsumedOffset
from .transactions import Transactions
from .trimming import Trimming


class StreamTask:
    """Call `invoke` once. `notify` is called from the same thread, or from another while that one hangs."""

    def __init__(
        self,
        opening: Open,
        mailbox: Mailbox,
        notify: Callable[[Notice], None],
        exit_lock: threading.Lock | None = None,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        """`exit_lock`, `transaction_timeout_ms`: as Transactions has them."""
        self._exit_lock = exit_lock
        self._transaction_timeout_ms = transaction_timeout_ms
        self._bootstrap_servers = opening.bootstrap_servers
        self._deployment = opening.deployment
        self._subtask = opening.subtask_index
        self._attempt = opening.attempt_number
        self._generation = opening.generation
        self._restore = opening.restore
        self._finished = opening.finished
        self._checkpoints_over = opening.checkpoints_over
        self._mailbox = mailbox
        self._notify = notify
        self._transactions: Transactions | None = None
        self._topic_ids = TopicIds("", ())
        self._valid_ids: Mapping[str, str] = {}
        self._wall_clock = WallClock()

    def invoke(self) -> None:
        """Runs the attempt to its end, which is the last notice. Raises nothing."""
        last: Notice
        try:
            if self._finished:
                self._end_again()
            else:
                self._work()
        except TaskCanceled:
            last = Canceled()
        except Exception as error:
            last = Failed(describe(error), isinstance(error, ProgressLost))
        else:
            last = Finished()
        if self._transactions is not None:
            self._transactions.abort()
        self._notify(last)

    def _work(self) -> None:
        assembly, subtask, beginning, standing = self._prepare()
        changelog = assembly.changelog
        trimming = None if changelog is None else Trimming(self._bootstrap_servers, changelog, self._subtask)
        run = Run(
            subtask,
            assembly,
            self._mailbox,
            Settings.of(self._deployment.job_graph.configuration),
            self._wall_clock,
            self._notify,
            trimming,
        )
        try:
            run.open()
            if beginning.begins:
                records = in_flight(beginning, self._deployment, self._subtask, assembly.codecs())
                subtask.begin_generation(records, standing)
            self._notify(Opened())
            run.until_ended()
        finally:
            if trimming is not None:
                trimming.close()
            subtask.close()

    def _hangs(self, reason: str) -> None:
        self._notify(Failed(reason))
        os._exit(1)

    def _end_again(self) -> None:
        """The subtask had finished in the checkpoint that the job went back to: all that is left is to say so."""
        assembly, transactions, consumer = self._assemble()
        consumer.close()
        for each in assembly.writer().flush(END_OF_TIME, ends=True, tell_all=True):
            transactions.send(each.topic, each.data, partition=each.partition)
        if transactions.active:
            transactions.commit(())

    def _assemble(self) -> tuple[Assembly, Transactions, Consumer]:
        """Fences older attempts."""
        deployment = self._deployment
        names = deployment.cluster, deployment.job_id
        group = consumer_group(*names, deployment.vertex_id, self._subtask)
        consumer = group_consumer(self._bootstrap_servers, group)
        transactions = self._transactions = Transactions(
            self._bootstrap_servers,
            transactional_id(*names, deployment.vertex_id, self._subtask),
            consumer.consumer_group_metadata(),
            self._hangs,
            self._exit_lock,
            self._transaction_timeout_ms,
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
        )
        transactions.open(assembly.changelog or _any_topic(deployment))
        return assembly, transactions, consumer

    def _prepare(self) -> tuple[Assembly, Subtask, Beginning, Sequence[ConsumedOffset]]:
        """Initialises state: fences older attempts, reads progress, checkpoint and changelog, builds the operators.

        With them comes what is to be committed besides positions, if the attempt begins its generation.
        """
        assembly, transactions, consumer = self._assemble()
        changelog, restore = assembly.changelog, self._restore
        own = assembly.channel_topics if changelog is None else (*assembly.channel_topics, changelog)
        self._topic_ids = TopicIds(self._bootstrap_servers, own)
        standing: list[ConsumedOffset] = []
        if (source := assembly.through_spark) is not None:
            kafka = KafkaSource.of(source)
            subtask, ends, beginning = self._kafka_subtask(
                assembly, kafka, source.operator_id, consumer, transactions
            )
            if transactions.mark is not None:
                standing.append(transactions.mark)
        else:
            topics = assembly.channel_topics
            committed = read_committed(consumer, [(topic, self._subtask) for topic in topics])
            beginning = self._beginning(assembly, consumer, committed)
            progress = Progress.read(topics, committed, self._generation)
            if committed:
                progress = self._checked(consumer, topics, progress, beginning, committed)
            progress = replace(progress, notes=tuple(self._note(each, changelog) for each in topics))
            subtask, ends = assembly.subtask(progress, begins=beginning.begins), None
        if beginning.begins:
            subtask.passes_below = {
                i: bounds(consumer, topic, self._subtask)[1]
                for i, topic in enumerate(assembly.channel_topics)
            }
        self._notify(Restored(os.getpid(), subtask.positions, ends))
        if changelog is not None and restore is not None and restore.generation < self._generation:
            begin = beginning.changelog_from
            if begin is None:
                begin = bounds(consumer, changelog, self._subtask)[1]
            note = of_generation(self._generation, self._note(changelog, None))
            standing.append(ConsumedOffset(changelog, self._subtask, begin, note))
        elif changelog is not None and restore is None and _polls(assembly):
            # Nobody reads on from there: with the topic's id it says which changelog holds where the source is.
            _, end = bounds(consumer, changelog, self._subtask)
            standing.append(ConsumedOffset(changelog, self._subtask, end, self._note(changelog, None)))
            transactions.commit(standing)
        if not beginning.begins:
            subtask.keep(standing)
        self._restore_state(assembly, subtask, beginning, consumer)
        consumer.close()
        return assembly, subtask, beginning, standing

    def _beginning(
        self, assembly: Assembly, consumer: Consumer, committed: Sequence[ConsumedOffset]
    ) -> Beginning:
        """With the position of the changelog, where the generation may have one."""
        if assembly.changelog is not None and (self._restore is not None or _polls(assembly)):
            committed = [*committed, *read_committed(consumer, [(assembly.changelog, self._subtask)])]
        known = self._topic_ids.known()
        self._valid_ids = still_valid(committed, self._generation, known, assembly.changelog)
        return beginning_of(
            self._deployment,
            self._subtask,
            generation=self._generation,
            restore=self._restore,
            committed=committed,
            changelog=assembly.changelog,
        )

    def _note(self, topic: str | None, changelog: str | None) -> str:
        """The ids, as far as they are known, that are committed beside a position; of a user's topic none is (None)."""
        known = self._valid_ids.get
        return write_ids(topic and known(topic), changelog and known(changelog))

    def _checked(
        self,
        consumer: Consumer,
        topics: Sequence[str],
        progress: Progress,
        beginning: Beginning,
        committed: Sequence[ConsumedOffset],
    ) -> Progress:
        """Positions that channels have. A generation that begins reads what was made anew from its first message."""
        positions = dict(progress.positions)
        anew = {each.topic for each in committed if is_anew(each, self._topic_ids.known())}
        for i, topic in enumerate(topics):
            position = positions.get((i, self._subtask), 0)
            if not beginning.begins:
                require_offset(consumer, topic, self._subtask, position)
                continue
            low, high = bounds(consumer, topic, self._subtask)
            holds = low <= position <= high and topic not in anew
            positions[i, self._subtask] = position if holds else low
        return replace(progress, positions=positions)

    def _restore_state(
        self, assembly: Assembly, subtask: Subtask, beginning: Beginning, consumer: Consumer
    ) -> None:
        changelog = assembly.changelog
        if changelog is None:
            return
        storage = beginning.storage
        if storage is not None:
            parallelism = assembly.vertex.parallelism
            for key, message in restored_state(storage, beginning.pieces, self._subtask, parallelism):
                subtask.kept.restore(key, message)
        if beginning.continued is not None and subtask.kept.writer is not None:
            restored = 0 if self._restore is None else self._restore.checkpoint_id
            subtask.kept.writer.continue_from(beginning.continued, restored)
        if beginning.changelog_from is not None:

            def place() -> str:
                """Of the message that was read last."""
                (after,) = consumer.position([TopicPartition(changelog, self._subtask)])
                return f"{changelog} [{self._subtask}] at offset {after.offset - 1}"

            for key, message in read_changelog(consumer, changelog, self._subtask, beginning.changelog_from):
                subtask.kept.replay(key, message, place)

    def _kafka_subtask(
        self,
        assembly: Assembly,
        source: KafkaSource,
        operator_id: str,
        consumer: Consumer,
        transactions: Transactions,
    ) -> tuple[Subtask, Positions | None, Beginning]:
        """Settles what the subtask reads, and commits that; its ends, where the source is bounded."""
        found: list[Beginning] = []

        def resume(committed: Sequence[ConsumedOffset]) -> Resumption | None:
            beginning = self._beginning(assembly, consumer, committed)
            found.append(beginning)
            return Resumption(beginning.kafka_positions(operator_id)) if beginning.begins else None

        parallelism = assembly.vertex.parallelism
        reading = settle(
            consumer,
            self._bootstrap_servers,
            source,
            self._subtask,
            parallelism,
            generation=self._generation,
            resume=resume,
        )
        if reading.settled:
            transactions.commit(reading.settled)
        transactions.mark = reading.mark
        if source.group_id is not None:
            transactions.share_progress(source.group_id, source.topics)
        ends = None if reading.ends is None else InputPositions(reading.ends).by_input()
        kafka = KafkaInput(reading.topics, reading.ends, tuple(reading.positions))
        notes = (self._note(None, assembly.changelog),) * len(reading.topics)
        return assembly.subtask(Progress(reading.positions, (), notes), kafka), ends, found[0]


def _polls(assembly: Assembly) -> bool:
    """Whether the subtask reads its source itself, and has no input of which it could commit positions."""
    return assembly.parts.source is not None and assembly.through_spark is None


def _any_topic(deployment: VertexDeployment) -> str:
    """A topic of the job that exists: a vertex has an input or an output, or it prints."""
    for edge in (*deployment.inputs, *deployment.outputs):
        return channel_topic(deployment.cluster, deployment.job_id, edge.data_set_id)
    return output_topic(deployment.cluster, deployment.job_id)
