"""Applies a difference to its first moment; the law is that this gives the second one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from tailrace.services.core.role import JOB_MASTER, TASK_EXECUTOR
from tailrace.services.history.state_diff import ChangeKind, Path, StateChange, StateDifference, compare
from tailrace.services.history.state_tree import LEADERS, LEVEL
from tailrace.services.history.time_travel import ClusterMoment
from tailrace.services.history.to_builtins import natural

_ROLES = "roles"


class DiffMismatch(ValueError):
    """A difference was applied to a moment that is not its first; the message says where they disagree."""


def apply_difference(found: StateDifference, to: ClusterMoment) -> ClusterMoment:
    """Returns the second moment. Raises DiffMismatch."""
    if (to.offset, to.state_hash) != (found.before.offset, found.before.state_hash):
        raise DiffMismatch(f"it begins at offset {found.before.offset}, with another state")
    parts: dict[str, Any] = {LEADERS: to.leaders, LEVEL: to.feature_level, _ROLES: to.roles}
    for change in found.changes:
        parts = apply_change(parts, replace(change, path=_path_in_moment(change.path)), 0)
    after = found.after
    hashes = dict(after.hashes)
    return ClusterMoment(after.offset, after.state_hash, hashes, parts[LEADERS], parts[_ROLES], parts[LEVEL])


def _path_in_moment(path: Path) -> Path:
    """Converts a path in the tree of states to one in the data of a moment."""
    if path[0] in (LEADERS, LEVEL):
        return path
    size = 2 if path[0] in (JOB_MASTER, TASK_EXECUTOR) else 1
    return (_ROLES, "/".join(map(str, path[:size])), *path[size:])


def apply_change(data: Any, change: StateChange, depth: int) -> Any:
    """Returns the data after the change; it is at the first `depth` steps of the path. The given data is not
    changed."""
    if depth == len(change.path):
        if change.what is ChangeKind.SPLICED:
            return _splice(data, change)
        _check(_are_same(data, change.before), change)
        return change.after
    key = change.path[depth]
    last = depth == len(change.path) - 1
    if isinstance(data, Mapping):
        if last and change.what is ChangeKind.ADDED:
            _check(key not in data, change)
            merged = {**data, key: change.after}
            return {item: merged[item] for item in sorted(merged, key=natural)}
        _check(key in data, change)
        if last and change.what is ChangeKind.REMOVED:
            _check(_are_same(data[key], change.before), change)
            return {element: value for element, value in data.items() if element != key}
        return {**data, key: apply_change(data[key], change, depth + 1)}
    _check(isinstance(data, Sequence) and isinstance(key, int) and key < len(data), change)
    return [
        apply_change(value, change, depth + 1) if place == key else value for place, value in enumerate(data)
    ]


def _splice(data: Any, change: StateChange) -> list[Any]:
    start = change.at or 0
    _check(isinstance(data, list), change)
    end = start + len(change.before)
    _check(_are_same(data[start:end], change.before), change)
    return [*data[:start], *change.after, *data[end:]]


def _check(agrees: bool, change: StateChange) -> None:
    if not agrees:
        raise DiffMismatch(f"what is at {'/'.join(map(str, change.path))} is not what it was to be")


def _are_same(before: Any, after: Any) -> bool:
    return next(compare(before, after, ()), None) is None
