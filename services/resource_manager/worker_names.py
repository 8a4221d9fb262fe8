"""The names of workers in active mode: worker-1, worker-2, ..., by the counter in the log."""

from __future__ import annotations

_PREFIX = "worker-"
_MAX_DIGITS = 18


def name_worker(number: int) -> str:
    """Returns the resource id of the worker with this number."""
    return f"{_PREFIX}{number}"


def number_of_worker(resource_id: str) -> int:
    """Returns the number in a resource id that `name_worker` made."""
    return int(resource_id.removeprefix(_PREFIX))


def is_given(resource_id: str, numbered: int) -> bool:
    """Returns whether this is the name of one of the first `numbered` workers."""
    digits = resource_id.removeprefix(_PREFIX)
    if digits == resource_id or not digits.isdecimal() or len(digits) > _MAX_DIGITS:
        return False
    return 0 < int(digits) <= numbered and name_worker(int(digits)) == resource_id
