"""Evidence of a subtask's progress besides its changelog. Progress below the evidence is refused, with its source.

The changelog alone defines where a new attempt continues. But a changelog may have been deleted or emptied, a
checkpoint may be ahead of it, and a broker may show less of it than was committed. So these are compared:

- a *checkpoint* of this generation comes before the last progress entry, and a source's positions in it are not higher;
- the *consumer group* has a copy of the changelog's position (commit_followup.py). It lags, and a broker may lose it or
  return an old one, so a lower or missing copy proves nothing; a higher one proves a commit;
- the *end* of the changelog for readers of uncommitted messages equals the end for readers of committed ones, after
  older attempts are fenced.

Sources that do not answer in time are skipped.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from .....infra import threads
from .....infra.kafka_connection import KafkaConnection
from ...common.failures import ProgressLostError, TaskError
from ...common.kafka_clients import admin_client, connected
from .changelog_reader import ChangelogTail
from .group_offsets import CommittedGroupOffset, Place, read_group_offset
from .topic_ids import made_anew, read_topic_ids

_TIMEOUT_S: Final = 3.0


class ProgressEvidence:
    """Asks Kafka in separate threads, concurrently with the other reads of a starting attempt. They connect at once,
    so create it before the fencing, and call `ask` after it."""

    def __init__(
        self,
        kafka: KafkaConnection,
        consumer: Consumer,
        changelog: str,
        partition: int,
        channels: Sequence[str],
        source_topics: Sequence[str] = (),
    ) -> None:
        """`consumer` belongs to the subtask's group. Close it only after `group_copy`."""
        self._fenced = threading.Event()
        self._ids: Future[Mapping[str, str]] = Future()
        self._end: Future[int | None] = Future()
        self._group: Future[CommittedGroupOffset | None] = Future()
        places = [(topic, partition) for topic in channels]
        threads.Thread(
            target=self._ask_cluster,
            args=(kafka, [*places, (changelog, partition)]),
            name="topic-ids",
        ).start()
        threads.Thread(
            target=self._ask_group, args=(consumer, changelog, places, source_topics), name="group-copy"
        ).start()

    def ask(self) -> None:
        """Sends the requests: older attempts are fenced, and write nothing more."""
        self._fenced.set()

    def topic_ids(self) -> Mapping[str, str]:
        """Returns the known ids of channels and changelog. Waits for the answer, as all methods do."""
        return self._ids.result()

    def end(self) -> int | None:
        """Returns the end of the changelog for readers of uncommitted messages."""
        return self._end.result()

    def group_copy(self) -> CommittedGroupOffset | None:
        """Returns the consumer group's copy of the changelog's position."""
        return self._group.result()

    def _ask_cluster(self, kafka: KafkaConnection, places: Sequence[Place]) -> None:
        # The answer is returned before the client is closed, which takes a while.
        try:
            client = admin_client(kafka)
            connected(client, places[-1][0])
            self._fenced.wait()
            end = _request_end(client, TopicPartition(*places[-1]))
            self._ids.set_result(read_topic_ids(client, [topic for topic, _ in places], _TIMEOUT_S))
            self._end.set_result(_offset_of(end))
        except Exception:  # the later access to the topic reports the error
            if not self._ids.done():
                self._ids.set_result({})
            if not self._end.done():
                self._end.set_result(None)

    def _ask_group(
        self, consumer: Consumer, changelog: str, places: Sequence[Place], source_topics: Sequence[str]
    ) -> None:
        try:
            connected(consumer, changelog)
            self._fenced.wait()
            copy = read_group_offset(consumer, places, source_topics)
        except Exception:  # likewise
            copy = None
        self._group.set_result(copy)


def require_group(
    tail: ChangelogTail,
    copy: CommittedGroupOffset | None,
    changelog: str,
    partition: int,
    generation: int,
    known_id: str | None,
) -> None:
    """Raises ProgressLost if the changelog holds less than its consumer group implies, in this generation."""
    if copy is None or copy.generation != generation:
        return
    if None not in (known_id, copy.changelog_id) and known_id != copy.changelog_id:
        raise ProgressLostError(made_anew(changelog, str(known_id)))
    if tail.offset < copy.offset:
        raise ProgressLostError(
            f"the changelog {changelog} [{partition}] has its last progress entry at offset {tail.offset}, and its"
            f" consumer group has one at {copy.offset}: messages were deleted; the job must roll back to a"
            " checkpoint"
        )


def require_checkpoint(
    tail: ChangelogTail,
    changelog: str,
    partition: int,
    generation: int,
    *,
    offset: int,
    positions: Mapping[str, Mapping[int, int]],
) -> None:
    """Raises ProgressLost if the changelog holds less than a checkpoint of this generation.

    `offset`: where the changelog continues after it; `positions`: of a Kafka source, topic -> partition -> next offset.
    """
    entry = tail.entry
    if entry is None or entry.generation < generation or tail.offset < offset:
        raise ProgressLostError(
            f"the changelog {changelog} [{partition}] has its last progress entry at offset {tail.offset}, and a"
            f" checkpoint ends at {offset}: messages were deleted; the job must roll back to a checkpoint"
        )
    for topic, those in positions.items():
        known = entry.find_input(topic)
        for number, position in those.items():
            now = None if known is None else known.positions.get(number)
            if now is not None and now < position:
                raise ProgressLostError(
                    f"{topic}-{number} is to be read on from offset {now} by the changelog {changelog} [{partition}],"
                    f" and a checkpoint has read it to {position}: the job must roll back to a checkpoint"
                )


def require_not_superseded(tail: ChangelogTail, changelog: str, partition: int, generation: int) -> None:
    """Raises TaskError if a newer generation of the job has written progress."""
    if tail.entry is not None and tail.entry.generation > generation:
        raise TaskError(
            f"superseded: the changelog {changelog} [{partition}] has, at offset {tail.offset}, progress of generation"
            f" {tail.entry.generation} of the job, and this attempt is of {generation}"
        )


def _request_end(client: AdminClient, changelog: TopicPartition) -> Future[Any]:
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    futures = client.list_offsets(
        {changelog: latest}, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=_TIMEOUT_S
    )
    return futures[changelog]


def _offset_of(end: Future[Any]) -> int | None:
    try:
        return int(end.result(_TIMEOUT_S).offset)
    except Exception:  # the topic does not exist: its reader reports that
        return None
