"""Work that follows a commit with some delay: copies of positions for tools, and deletion of records that nobody
reads again.

- The consumer *group* of the subtask, and the `group_id` of a Kafka source, receive the committed positions. They are a
  copy: no attempt continues from them. Their metadata is data that a new attempt can check (group_offsets.py).
- The *changelog* is deleted below the last completed checkpoint. If the vertex has no state, it is deleted below the
  last progress entry.
- *Channels* are deleted below the positions that the receiver committed a minute ago. Nobody reads below committed
  positions: a new attempt and a new generation continue from them, and checkpoint files hold the records in flight. But
  a query that is starting has received its positions shortly before, so it gets that minute.

All requests are low priority (lazy_requests.py): a broker that does not answer delays no commit.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from .....infra.kafka_connection import KafkaConnection
from ...common.kafka_clients import admin_client
from ..checkpoint.subtask_output import CommittedProgress
from ..restore.group_offsets import CommittedGroupOffset, GroupOffsets
from ..state.progress_entry import ProgressEntry
from .lazy_requests import LAST_ROUND_S, LowPriorityRequests

_log = logging.getLogger(__name__)
_TIMEOUT_S: Final = 10.0
_REFUSED: Final = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.POLICY_VIOLATION})
"""No right, or a topic that is compacted."""
KEEP_S: Final = 60.0
"""How long a channel keeps records after they are read and committed."""
_STEPS: Final = 6
"""The largest number of deletions of a channel in that time."""


class CommitFollowUp:
    """The follow-up work of one attempt. All methods but `close` return at once."""

    def __init__(
        self,
        kafka: KafkaConnection,
        changelog: str,
        partition: int,
        group: str,
        *,
        keeps_state: bool,
        channels: Collection[str] = (),
        shared_group: str | None = None,
        source_kafka: KafkaConnection | None = None,
        requests: LowPriorityRequests | None = None,
        keep_s: float = KEEP_S,
    ) -> None:
        """`channels`: topics whose partition only this subtask reads. `shared_group`: the `group_id` of a Kafka
        source; `source_kafka`: the cluster of its topics, if that is another one. The subtask's own group cannot have
        positions of topics that its cluster does not have."""
        self._requests = requests or LowPriorityRequests()
        self._changelog = changelog
        self._partition = partition
        self._keeps_state = keeps_state
        self._group = None if source_kafka is not None else GroupOffsets(kafka, group)
        self._shared = None if shared_group is None else GroupOffsets(source_kafka or kafka, shared_group)
        self._deletion = RecordDeletion(kafka)
        self._channels = channels
        self._keep_s = keep_s
        self._read: deque[tuple[float, Mapping[str, int]]] = deque()
        """The positions of channels by the time of their commit."""

    def on_committed(self, committed: CommittedProgress) -> None:
        """Handles a commit that ends with this entry, or the start of an attempt with the entry of the last commit."""
        self._requests.put("positions", partial(self._copy, committed))
        if not self._keeps_state and committed.offset > 0:
            self.trim_changelog(committed.offset)
        if self._channels:
            self._trim_channels(committed.entry, time.monotonic())

    def trim_changelog(self, below: int) -> None:
        """Requests the deletion of the changelog below this offset."""
        self._requests.put("changelog", partial(self._deletion, self._changelog, self._partition, below))

    def _trim_channels(self, entry: ProgressEntry, now: float) -> None:
        if not self._read or now >= self._read[-1][0] + self._keep_s / _STEPS:
            positions = {
                input_.topic: input_.first_unprocessed(self._partition)
                for input_ in entry.inputs
                if input_.topic in self._channels
            }
            self._read.append((now, positions))
        below: Mapping[str, int] = {}
        while self._read and self._read[0][0] <= now - self._keep_s:
            below = self._read.popleft()[1]
        for topic, offset in below.items():
            if offset > 0:
                self._requests.put(topic, partial(self._deletion, topic, self._partition, offset))

    def close(self, *, ended: bool) -> None:
        """Ends the follow-up work. `ended`: whether the task has finished; then its last positions are copied first."""
        self._requests.close(LAST_ROUND_S if ended else 0.0)

    def _copy(self, committed: CommittedProgress) -> None:
        entry = committed.entry
        copy = CommittedGroupOffset(entry.generation, committed.offset, entry.changelog_id)
        positions = {
            (input_.topic, partition): offset
            for input_ in entry.inputs
            for partition, offset in input_.positions.items()
        }
        # The changelog's own position would be useless: Kafka removes the committed offsets of a deleted topic.
        if positions:
            if self._group is not None:
                self._group.commit(positions, copy)
            if self._shared is not None:
                self._shared.commit(positions)


class RecordDeletion:
    """Deletes records before an offset (KIP-107). For one thread.

    A client that has failed is replaced: a new one does not know a broker that is gone. A deletion that Kafka refuses
    is logged once for each topic, because nothing else fails with it, and the disk fills.
    """

    def __init__(self, kafka: KafkaConnection) -> None:
        self._kafka = kafka
        self._client: AdminClient | None = None
        self._refused: set[str] = set()

    def __call__(self, topic: str, partition: int, offset: int) -> None:
        """Deletes the records. Raises KafkaException."""
        if self._client is None:
            self._client = admin_client(self._kafka)
        asked = self._client.delete_records(
            [TopicPartition(topic, partition, offset)],
            request_timeout=_TIMEOUT_S,
            operation_timeout=_TIMEOUT_S,
        )
        try:
            for future in asked.values():
                future.result(_TIMEOUT_S)
        except Exception as error:
            self._client = None
            if isinstance(error, KafkaException) and error.args[0].code() in _REFUSED:
                self._warn(topic, error.args[0])
            raise

    def _warn(self, topic: str, error: KafkaError) -> None:
        if topic in self._refused:
            return
        self._refused.add(topic)
        _log.warning(
            "cannot delete the records of %s that nobody reads again, so it grows: %s. Grant Delete on it to the "
            "principal of the tasks, and give it cleanup.policy=delete",
            topic,
            error.str(),
        )
