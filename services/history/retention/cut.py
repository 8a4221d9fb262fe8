"""Decides where the topic may begin: below that, its events are archived and older than the retention."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .segment import Segment


class RetentionPolicy(msgspec.Struct, frozen=True):
    """What the topic keeps of its archived events; None: there is no such limit. Without any limit it keeps all."""

    max_age: int | None = None
    """Microseconds; older events are deleted."""
    max_bytes: int | None = None
    """Older events are deleted if the topic has more archived bytes."""

    @property
    def is_on(self) -> bool:
        """Whether events are ever deleted."""
        return self.max_age is not None or self.max_bytes is not None


def is_old(time: int | None, policy: RetentionPolicy, now: int) -> bool:
    """Returns whether an event of that time is older than the retention; None: an unknown time, which is old."""
    return policy.max_age is not None and (time is None or time < now - policy.max_age)


def find_outdated(
    segments: Sequence[Segment], oldest_snapshot: int, policy: RetentionPolicy, now: int
) -> list[Segment]:
    """Returns the first segments that the topic need not keep. `segments`: without a gap, from the one with the first
    offset of the topic. `now`: microseconds since the epoch.

    They do not reach beyond the event of the oldest snapshot, which stays in the topic and identifies the log.
    """
    outdated = []
    size = sum(segment.log_bytes for segment in segments)
    for segment in segments:
        is_large = policy.max_bytes is not None and size > policy.max_bytes
        if segment.last > oldest_snapshot or not (is_large or is_old(segment.last_time, policy, now)):
            break
        outdated.append(segment)
        size -= segment.log_bytes
    return outdated


def first_retained(outdated: Sequence[Segment]) -> int:
    """Returns the new first offset of the topic: it keeps the last offset of the outdated segments, so that archive and
    topic can be compared."""
    return outdated[-1].last
