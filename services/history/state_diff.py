"""Computes the complete difference between two states as data: applied to the first, it gives the second.

A change has a path in the tree of states (state_tree.py): `leaders`, `feature_level`, or the path of a state; then
fields, map keys and list indexes. States that are identical in both replicas are skipped; in a long log, most are.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import msgspec

from ..core.replica import Replica
from ..snapshots.state_hash import hash_all
from .lazy_states import LazyStates
from .state_tree import LEADERS, LEVEL, state_path
from .time_travel import role_hashes
from .to_builtins import natural, to_builtins

Path = tuple[str | int, ...]


class ChangeKind(StrEnum):
    """What happened to a place."""

    ADDED = "added"
    """A new key; `after` is its value."""
    REMOVED = "removed"
    """A removed key; `before` was its value."""
    CHANGED = "changed"
    """A changed value."""
    SPLICED = "spliced"
    """A list: from index `at` on, the items `before` were replaced by `after`; one of both may be empty."""


class StateChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A difference at one path of a state."""

    path: Path
    what: ChangeKind
    before: Any = None
    after: Any = None
    at: int | None = None


class DiffEndpoint(msgspec.Struct, frozen=True):
    """One of the two moments."""

    offset: int
    state_hash: str
    hashes: dict[str, str]


class StateDifference(msgspec.Struct, frozen=True):
    """The complete difference; the second moment may be before the first."""

    before: DiffEndpoint
    after: DiffEndpoint
    changes: tuple[StateChange, ...]


def diff_states(before: Replica, after: Replica) -> StateDifference:
    """Returns the difference between the states of two replicas."""
    changes = [
        *compare(to_builtins(before.leadership.leaders), to_builtins(after.leadership.leaders), (LEADERS,)),
        *compare(before.leadership.feature_level, after.leadership.feature_level, (LEVEL,)),
        *_states(before, after),
    ]
    return StateDifference(_point(before), _point(after), tuple(changes))


def changed_addresses(before: Replica, after: Replica) -> list[str]:
    """Returns the addresses whose states differ, sorted."""
    return [
        address
        for address in sorted({*before.states, *after.states})
        if not _same_state(before, after, address)
    ]


def compare(before: Any, after: Any, path: Path) -> Iterator[StateChange]:
    """Yields the differences between two values at a path."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}, key=natural):
            here = (*path, key)
            if key not in after:
                yield StateChange(here, ChangeKind.REMOVED, before=before[key])
            elif key not in before:
                yield StateChange(here, ChangeKind.ADDED, after=after[key])
            else:
                yield from compare(before[key], after[key], here)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _diff_lists(before, after, path)
    elif type(before) is not type(after) or before != after:
        yield StateChange(path, ChangeKind.CHANGED, before=before, after=after)


def _diff_lists(before: list[Any], after: list[Any], path: Path) -> Iterator[StateChange]:
    same = [_same(*pair) for pair in zip(before, after, strict=False)]
    if len(before) == len(after):
        for place, each in enumerate(same):
            if not each:
                yield from compare(before[place], after[place], (*path, place))
        return
    head = same.index(False) if False in same else len(same)
    tail = 0
    while tail < len(same) - head and _same(before[-1 - tail], after[-1 - tail]):
        tail += 1
    yield StateChange(
        path, ChangeKind.SPLICED, before[head : len(before) - tail], after[head : len(after) - tail], at=head
    )


def _same(before: Any, after: Any) -> bool:
    return before is after or next(compare(before, after, ()), None) is None


def _states(before: Replica, after: Replica) -> Iterator[StateChange]:
    for address in changed_addresses(before, after):
        path: Path = state_path(address)
        if address not in after.states:
            yield StateChange(path, ChangeKind.REMOVED, before=to_builtins(before.states[address]))
        elif address not in before.states:
            yield StateChange(path, ChangeKind.ADDED, after=to_builtins(after.states[address]))
        else:
            yield from compare(to_builtins(before.states[address]), to_builtins(after.states[address]), path)


def _same_state(before: Replica, after: Replica, address: str) -> bool:
    if address not in before.states or address not in after.states:
        return False
    kept = [
        replica.states.bytes_of(address) if isinstance(replica.states, LazyStates) else None
        for replica in (before, after)
    ]
    if None not in kept:
        return kept[0] == kept[1]
    return bool(before.states[address] == after.states[address])


def _point(replica: Replica) -> DiffEndpoint:
    hashes = role_hashes(replica)
    return DiffEndpoint(replica.offset, hash_all(hashes), hashes)
