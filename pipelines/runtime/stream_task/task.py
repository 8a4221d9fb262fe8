"""One attempt of one subtask: document 002's lifecycle (initialise state, open, run, close)."""

from __future__ import annotations

import os
from collections.abc import Callable

from confluent_kafka import Consumer

from ...graph.physical_plan import channel_topic, consumer_group, output_topic, transactional_id
from ..deployment import VertexDeployment
from ..failures import describe
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
from .kafka import group_consumer
from .kafka_reading import settle
from .mailbox import Mailbox, TaskCanceled
from .positions import InputPositions
from .progress import Progress
from .restore import read_changelog, read_committed
from .run import Run, WallClock
from .subtask import Subtask
from .transactions import Transactions


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
        transactions.mark = reading.mark
        if source.group_id is not None:
            transactions.share_progress(source.group_id)
        ends = None if reading.ends is None else InputPositions(reading.ends).by_input()
        kafka = KafkaInput(reading.topics, reading.ends, tuple(reading.positions))
        return assembly.subtask(Progress(reading.positions, ()), kafka), ends


def _any_topic(deployment: VertexDeployment) -> str:
    """A topic of the job that exists: a vertex has an input or an output, or it prints."""
    for edge in (*deployment.inputs, *deployment.outputs):
        return channel_topic(deployment.cluster, deployment.job_id, edge.data_set_id)
    return output_topic(deployment.cluster, deployment.job_id)
