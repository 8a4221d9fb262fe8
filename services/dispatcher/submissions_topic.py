"""Detects whether a submissions topic is still the topic of the log's positions.

A position means nothing for a topic that was deleted and created again. So the Dispatcher stores the topic's id
(KIP-516) with its positions, and compares both with Kafka before it admits anything:

1. Another id: the topic was created again, or the log was copied. Admission starts at the topic's first offset.
2. No id and no position, and the log is new: earlier submissions belong to an earlier log and are not run again.
   Admission starts at the end. The log is new as long as it does not know the topic without a tenant, which is
   recorded last.
3. No id, but positions: an earlier release wrote the log. The id is recorded.
4. No id and no position, and the log is not new: the topic is of a new tenant. Admission starts at its first offset.
5. A position above the end of the topic: its last records were lost. Admission continues at the end, so that new
   records are not mistaken for old ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from immutables import Map

from ...schemas.dispatcher import SubmissionsTopicChanged


class AdmittedPositions(msgspec.Struct, frozen=True):
    """The admitted positions of a topic in the log: the topic's id (None if it is not recorded yet), and partition ->
    next offset to admit."""

    topic_id: str | None = None
    positions: Map[int, int] = Map()

    def admit(self, partition: int, offset: int) -> AdmittedPositions:
        """Returns the positions after the record at this offset was admitted or refused."""
        # A refusal may follow later admitted submissions in the log.
        position = max(offset + 1, self.positions.get(partition, 0))
        return AdmittedPositions(self.topic_id, self.positions.set(partition, position))


AdmittedTopics = Map[str, AdmittedPositions]
"""Tenant -> the admitted positions of its topic; the key of the topic without a tenant is empty."""


class SubmissionsTopic(msgspec.Struct, frozen=True):
    """The topic in Kafka: its id (None if brokers have none), and the first and next offset of each partition."""

    topic_id: str | None
    offsets: Sequence[tuple[int, int]]

    @property
    def ends(self) -> tuple[int, ...]:
        """The next offset of each partition."""
        return tuple(end for _, end in self.offsets)

    @property
    def size(self) -> int:
        """The number of records."""
        return sum(end - first for first, end in self.offsets)


def detect_change(
    name: str, known: AdmittedTopics, found: SubmissionsTopic, tenant: str = ""
) -> SubmissionsTopicChanged | None:
    """Returns the event to append before submissions of a tenant's topic `name` are admitted; None: nothing changed."""
    if found.topic_id is None:
        return None
    admitted = known.get(tenant, AdmittedPositions())

    def changed(positions: Sequence[int], reason: str) -> SubmissionsTopicChanged:
        return SubmissionsTopicChanged(
            topic_id=found.topic_id or "",
            positions=tuple(positions),
            reason=f"{name} {reason}",
            tenant=tenant,
        )

    positions = [admitted.positions.get(partition, 0) for partition in range(len(found.offsets))]
    is_continued = max(admitted.positions, default=-1) < len(positions) and all(
        position <= end for position, end in zip(positions, found.ends, strict=True)
    )
    if tenant and admitted == AdmittedPositions() and "" in known:
        return changed((), "is read from its start, because its tenant is new")
    if admitted == AdmittedPositions():
        waiting = (
            f": the {found.size} submissions in it belong to an earlier log, and are not run"
            if found.size
            else ""
        )
        return changed(found.ends, f"is read from its end, because the log is new{waiting}")
    if admitted.topic_id is None and is_continued:
        return changed(positions, "is read further; its id was not in the log yet")
    if admitted.topic_id != found.topic_id:
        return changed(
            (), "is another topic than before (was it deleted, or the log copied?): it is read from its start"
        )
    if is_continued:
        return None
    bounded = [min(position, end) for position, end in zip(positions, found.ends, strict=True)]
    return changed(bounded, "has lost its last records: it is read from its end")
