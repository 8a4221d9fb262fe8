"""Windows of counts as the job prints them, and whether they are what was sent.

The windows are in processing time, and each subtask goes by its own clock: a window holds no certain piece of the text.
But when no more text is sent, all windows together hold each word as often as it was sent. This check needs no
tolerance, and a lost or doubled word does not pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ...client import OutputRecord

_QUIET_S = 0.7
_GRACE_S = 0.3


@dataclass(slots=True)
class Window:
    """The counts of a window; `end_ms` is its end, in milliseconds since the epoch."""

    end_ms: int
    counts: Counter[str] = field(default_factory=Counter)
    last_arrival: float = 0.0

    @property
    def total(self) -> int:
        """Words counted."""
        return self.counts.total()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the counts are what was sent, in words for people."""

    right: bool
    text: str


class WindowCounts:
    """Collects printed records, which are `{"word", "count"}`, into windows."""

    def __init__(self) -> None:
        self._windows: dict[int, Window] = {}
        self._told: set[int] = set()
        self._latest: dict[int, int] = {}

    def add(self, record: OutputRecord, now: float) -> None:
        """A record has come in at `now`, in seconds; its timestamp is the end of its window, less a millisecond."""
        end = record.timestamp + 1
        window = self._windows.setdefault(end, Window(end))
        window.counts[record.record["word"]] += record.record["count"]
        window.last_arrival = now
        self._latest[record.subtask] = max(end, self._latest.get(record.subtask, 0))

    def closed_windows(self, now: float) -> list[Window]:
        """Windows that seem to be complete and were not returned before; `now` in seconds since the epoch."""
        fresh = []
        for end in sorted(self._windows.keys() - self._told):
            window = self._windows[end]
            followed = all(latest > end for latest in self._latest.values())
            quiet = now > window.last_arrival + _QUIET_S and now > end / 1000 + _GRACE_S
            if followed or quiet:
                self._told.add(end)
                fresh.append(window)
        return fresh

    def complete(self, subtasks: int) -> list[Window]:
        """The windows that so many subtasks have all gone past, oldest first: nothing more can come of them."""
        if len(self._latest) < subtasks:
            return []
        return [window for window in self.windows() if window.end_ms < min(self._latest.values())]

    def windows(self) -> list[Window]:
        """All windows, oldest first."""
        return [self._windows[end] for end in sorted(self._windows)]


def check_counts(windows: Iterable[Window], sent: Sequence[tuple[str, ...]]) -> Verdict:
    """Holds all windows of a job against all lines that were sent to it."""
    counted: Counter[str] = sum((window.counts for window in windows), Counter())
    expected = Counter(word for line in sent for word in line)
    total, lines = counted.total(), f"the {len(sent):,} lines sent"
    if total == 0:
        return Verdict(False, "nothing was counted")
    if counted == expected:
        return Verdict(
            True, f"{total:,} words counted: exactly those of {lines}, each as often as it was sent"
        )
    surplus, missing = counted - expected, expected - counted
    return Verdict(
        False,
        f"{total:,} words counted, but {lines} hold {expected.total():,}: "
        f"too many of {_format_some(surplus)}; too few of {_format_some(missing)}",
    )


def _format_some(words: Counter[str]) -> str:
    return ", ".join(f"{word!r} ({count})" for word, count in words.most_common(5)) or "none"
