"""The names of workers in active mode: worker-1, worker-2, ..., by the counter in the log."""

from __future__ import annotations

_PREFIX = "worker-"


def name_worker(number: int) -> str:
    """Returns the resource id of the worker with this number."""
    return f"{_PREFIX}{number}"


def number_of_worker(resource_id: str) -> int:
    """Returns the number in a resource id that `name_worker` made."""
    return int(resource_id.removeprefix(_PREFIX))
