"""What follows from a commit, some time later: copies of positions for tools, and deletion of what nobody reads again.

- The *group* of the subtask, and the `group_id` of a Kafka source, get the committed positions. They are a copy: nobody
  goes on from them. Beside the positions lies what a new attempt can check (group_offsets.py).
- The *changelog* is deleted below the last completed checkpoint; where the vertex keeps no state, below the last
  progress entry.
- *Channels* are deleted below the positions that the receiver committed a minute ago. Nobody reads below committed
  positions: a new attempt and a new generation go on from them, and what a checkpoint has in flight is in its files.
  But a query that is being started was told its positions a moment before, so some time is left to it.

All of it is asked lazily (lazy_requests.py): a broker that does not answer delays no commit.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from ...common.kafka_clients import admin_client
from ..checkpoint.subtask_output import CommittedProgress
from ..restore.group_offsets import CommittedGroupOffset, GroupOffsets
from ..state.progress_entry import ProgressEntry
from .lazy_requests import LAST_ROUND_S, LowPriorityRequests

_TIMEOUT_S: Final = 10.0
KEEP_S: Final = 60.0
"""How long a channel keeps what was read of it and committed."""
_STEPS: Final = 6
"""In so many steps at most a channel is deleted within that time."""


class CommitFollowUp:
    """Of one attempt. Methods return at once, but for `close`."""

    def __init__(
        self,
        bootstrap_servers: str,
        changelog: str,
        partition: int,
        group: str,
        *,
        keeps_state: bool,
        channels: Collection[str] = (),
        shared_group: str | None = None,
        requests: LowPriorityRequests | None = None,
        keep_s: float = KEEP_S,
    ) -> None:
        """`channels`: topics of which nobody else reads the partition. `shared_group`: `group_id` of a Kafka source."""
        self._requests = requests or LowPriorityRequests()
        self._changelog = changelog
        self._partition = partition
        self._keeps_state = keeps_state
        self._group = GroupOffsets(bootstrap_servers, group)
        self._shared = None if shared_group is None else GroupOffsets(bootstrap_servers, shared_group)
        self._deletion = RecordDeletion(bootstrap_servers)
        self._channels = channels
        self._keep_s = keep_s
        self._read: deque[tuple[float, Mapping[str, int]]] = deque()
        """When which positions of channels were committed."""

    def on_committed(self, committed: CommittedProgress) -> None:
        """A transaction that ends with this entry; or an attempt begins with it, at the offset of the last one."""
        self._requests.put("positions", partial(self._copy, committed))
        if not self._keeps_state and committed.offset > 0:
            self.trim_changelog(committed.offset)
        if self._channels:
            self._trim_channels(committed.entry, time.monotonic())

    def trim_changelog(self, below: int) -> None:
        """Nobody reads on from below this offset any more."""
        self._requests.put("changelog", partial(self._deletion, self._changelog, self._partition, below))

    def _trim_channels(self, entry: ProgressEntry, now: float) -> None:
        if not self._read or now >= self._read[-1][0] + self._keep_s / _STEPS:
            positions = {
                each.topic: each.positions.get(self._partition, 0)
                for each in entry.inputs
                if each.topic in self._channels
            }
            self._read.append((now, positions))
        below: Mapping[str, int] = {}
        while self._read and self._read[0][0] <= now - self._keep_s:
            below = self._read.popleft()[1]
        for topic, offset in below.items():
            if offset > 0:
                self._requests.put(topic, partial(self._deletion, topic, self._partition, offset))

    def close(self, *, ended: bool) -> None:
        """`ended`: whether the task has come to its end: its last positions are to be seen."""
        self._requests.close(LAST_ROUND_S if ended else 0.0)

    def _copy(self, committed: CommittedProgress) -> None:
        entry = committed.entry
        copy = CommittedGroupOffset(entry.generation, committed.offset, entry.changelog_id)
        positions = {
            (each.topic, partition): offset
            for each in entry.inputs
            for partition, offset in each.positions.items()
        }
        # The changelog's own position would tell nothing: Kafka forgets what was committed of a topic that is deleted.
        if positions:
            self._group.commit(positions, copy)
            if self._shared is not None:
                self._shared.commit(positions)


class RecordDeletion:
    """Of what lies before an offset (KIP-107). Call from one thread.

    A client that has failed is not used again: the next one knows nothing of a broker that is gone.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client: AdminClient | None = None

    def __call__(self, topic: str, partition: int, offset: int) -> None:
        """Raises KafkaException."""
        if self._client is None:
            self._client = admin_client(self._bootstrap_servers)
        asked = self._client.delete_records(
            [TopicPartition(topic, partition, offset)],
            request_timeout=_TIMEOUT_S,
            operation_timeout=_TIMEOUT_S,
        )
        try:
            for future in asked.values():
                future.result(_TIMEOUT_S)
        except Exception:
            self._client = None
            raise
