"""Detects whether the submissions topic is still the topic of the log's positions.

A position means nothing for a topic that was deleted and created again. So the Dispatcher stores the topic's id
(KIP-516) with its positions, and compares both with Kafka before it admits anything:

1. Another id: the topic was created again, or the log was copied. Admission starts at the topic's first offset.
2. No id and no position: the log is new. Earlier submissions belong to an earlier log and are not run again: admission
   starts at the end.
3. No id, but positions: an earlier release wrote the log. The id is recorded.
4. A position above the end of the topic: its last records were lost. Admission continues at the end, so that new
   records are not mistaken for old ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ...schemas.dispatcher import SubmissionsTopicChanged


class AdmittedPositions(msgspec.Struct, frozen=True):
    """The admitted positions in the log: the topic's id, and partition -> next offset to admit."""

    topic_id: str | None
    positions: Mapping[int, int]


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
    name: str, admitted: AdmittedPositions, found: SubmissionsTopic
) -> SubmissionsTopicChanged | None:
    """Returns the event to append before submissions of the topic `name` are admitted; None: nothing changed."""
    if found.topic_id is None:
        return None

    def changed(positions: Sequence[int], reason: str) -> SubmissionsTopicChanged:
        return SubmissionsTopicChanged(
            topic_id=found.topic_id or "", positions=tuple(positions), reason=f"{name} {reason}"
        )

    positions = [admitted.positions.get(partition, 0) for partition in range(len(found.offsets))]
    known = max(admitted.positions, default=-1) < len(positions) and all(
        position <= end for position, end in zip(positions, found.ends, strict=True)
    )
    if admitted.topic_id is None and not admitted.positions:
        waiting = (
            f": the {found.size} submissions in it belong to an earlier log, and are not run"
            if found.size
            else ""
        )
        return changed(found.ends, f"is read from its end, because the log is new{waiting}")
    if admitted.topic_id is None and known:
        return changed(positions, "is read further; its id was not in the log yet")
    if admitted.topic_id != found.topic_id:
        return changed(
            (), "is another topic than before (was it deleted, or the log copied?): it is read from its start"
        )
    if known:
        return None
    kept = [min(position, end) for position, end in zip(positions, found.ends, strict=True)]
    return changed(kept, "has lost its last records: it is read from its end")
