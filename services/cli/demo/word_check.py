"""The check that a job counted the words that were sent.

The windows of WindowWordCount are in processing time, and each subtask has its own clock: no window holds a certain
part of the text. But when no more text is sent, all windows together hold each word as often as it was sent. The check
needs no tolerance: it finds every lost or doubled word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def check_counts(counted: Counter[str], sent: Sequence[tuple[str, ...]]) -> tuple[bool, str]:
    """Compares the counts of all windows with all lines that were sent; returns the result, and a line about it."""
    expected = Counter(word for line in sent for word in line)
    total, lines = counted.total(), f"the {len(sent):,} lines sent"
    if total == 0:
        return False, "nothing was counted"
    if counted == expected:
        return True, f"{total:,} words counted: exactly those of {lines}, each as often as it was sent"
    surplus, missing = (_format_some(words) for words in (counted - expected, expected - counted))
    return False, (
        f"{total:,} words counted, but {lines} hold {expected.total():,}: too many of {surplus}; too few of {missing}"
    )


def _format_some(words: Counter[str]) -> str:
    return ", ".join(f"{word!r} ({count})" for word, count in words.most_common(5)) or "none"
