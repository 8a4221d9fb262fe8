"""Computes the difference between two states of the cluster as data. Applied to the first state, it gives the second.

A change has a path: `leaders`, `feature_level`, or `roles` and an address; then fields, map keys and list indexes.
States that are identical in both replicas are skipped; in a long log, most are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from ..core.replica import Replica
from ..snapshots.state_hash import hash_all
from .lazy_states import LazyStates
from .time_travel import ClusterMoment, role_hashes
from .to_builtins import natural, to_builtins

LEADERS, LEVEL, ROLES = "leaders", "feature_level", "roles"
Path = tuple[str | int, ...]


class DiffMismatch(ValueError):
    """A difference was applied to a moment that is not its first; the message says where they disagree."""


class ChangeKind(StrEnum):
    """What was done to a place."""

    ADDED = "added"
    """A key that was not there; `after` is its value."""
    REMOVED = "removed"
    """A key that is gone; `before` was its value."""
    CHANGED = "changed"
    """Another value."""
    SPLICED = "spliced"
    """A list: from place `at` on, the items `before` were replaced by `after`; of one of both there may be none."""


class StateChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """One place that is not the same."""

    path: Path
    what: ChangeKind
    before: Any = None
    after: Any = None
    at: int | None = None


class DiffEndpoint(msgspec.Struct, frozen=True):
    """A moment without its states."""

    offset: int
    state_hash: str
    hashes: dict[str, str]


class StateDifference(msgspec.Struct, frozen=True):
    """All that is different; the second moment may be before the first."""

    before: DiffEndpoint
    after: DiffEndpoint
    changes: tuple[StateChange, ...]


def diff_states(before: Replica, after: Replica) -> StateDifference:
    """What is different between what two replicas know."""
    changes = [
        *compare(to_builtins(before.leadership.leaders), to_builtins(after.leadership.leaders), (LEADERS,)),
        *compare(before.leadership.feature_level, after.leadership.feature_level, (LEVEL,)),
        *_states(before, after),
    ]
    return StateDifference(_point(before), _point(after), tuple(changes))


def apply_difference(found: StateDifference, to: ClusterMoment) -> ClusterMoment:
    """The second moment, from the first. Raises DoesNotApply."""
    if (to.offset, to.state_hash) != (found.before.offset, found.before.state_hash):
        raise DiffMismatch(f"it begins at offset {found.before.offset}, with another state")
    parts: dict[str, Any] = {LEADERS: to.leaders, LEVEL: to.feature_level, ROLES: to.roles}
    for change in found.changes:
        parts = _apply_change(parts, change, 0)
    after = found.after
    hashes = dict(after.hashes)
    return ClusterMoment(after.offset, after.state_hash, hashes, parts[LEADERS], parts[ROLES], parts[LEVEL])


def changed_addresses(before: Replica, after: Replica) -> list[str]:
    """The addresses whose states are not the same, by name."""
    return [
        address
        for address in sorted({*before.states, *after.states})
        if not _same_state(before, after, address)
    ]


def compare(before: Any, after: Any, path: Path) -> Iterator[StateChange]:
    """What is different between two pieces of data at a path."""
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
        path: Path = (ROLES, address)
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


def _apply_change(data: Any, change: StateChange, depth: int) -> Any:
    """The data, which lies at the first `depth` steps of the path, after the change; nothing of it is changed."""
    if depth == len(change.path):
        if change.what is ChangeKind.SPLICED:
            return _splice(data, change)
        _check(_same(data, change.before), change)
        return change.after
    key = change.path[depth]
    last = depth == len(change.path) - 1
    if isinstance(data, Mapping):
        if last and change.what is ChangeKind.ADDED:
            _check(key not in data, change)
            merged = {**data, key: change.after}
            return {each: merged[each] for each in sorted(merged, key=natural)}
        _check(key in data, change)
        if last and change.what is ChangeKind.REMOVED:
            _check(_same(data[key], change.before), change)
            return {each: value for each, value in data.items() if each != key}
        return {**data, key: _apply_change(data[key], change, depth + 1)}
    _check(isinstance(data, Sequence) and isinstance(key, int) and key < len(data), change)
    return [
        _apply_change(each, change, depth + 1) if place == key else each for place, each in enumerate(data)
    ]


def _splice(data: Any, change: StateChange) -> list[Any]:
    start = change.at or 0
    _check(isinstance(data, list), change)
    end = start + len(change.before)
    _check(_same(data[start:end], change.before), change)
    return [*data[:start], *change.after, *data[end:]]


def _check(agrees: bool, change: StateChange) -> None:
    if not agrees:
        raise DiffMismatch(f"what is at {'/'.join(map(str, change.path))} is not what it was to be")
