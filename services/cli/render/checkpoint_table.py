"""The checkpoints of a job as table rows, as lines of text, and as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from ...history.checkpoint_history import CheckpointsView, CheckpointView, RestoreView
from .formatting import format_duration, format_size, format_time

COLUMNS = ("ID", "TYPE", "STATUS", "TRIGGERED", "DURATION", "SIZE", "WRITTEN", "SUBTASKS", "WHERE OR WHY")
_MAX_NAMED = 3
_LONGEST_REASON = 160


def row(view: CheckpointView, now: int) -> tuple[str, ...]:
    """Returns the table row of a checkpoint. `now` is in microseconds since the epoch."""
    return (
        str(view.checkpoint_id),
        view.snapshot_type.value,
        view.status.value,
        format_time(view.triggered),
        format_duration(max(0, (view.ended or now) - view.triggered)),
        format_size(view.size or sum(subtask.size for subtask in view.subtasks)),
        format_size(view.bytes_written),
        f"{view.acknowledged}/{len(view.subtasks)}",
        where_or_why(view),
    )


def where_or_why(view: CheckpointView) -> str:
    """Returns the path if completed, the tasks that have not acknowledged if in progress, the reason if failed."""
    match view.status.value:
        case "COMPLETED":
            return "discarded" if view.discarded else view.uri
        case "IN_PROGRESS":
            declined = next((subtask for subtask in view.subtasks if subtask.declined), None)
            if declined is not None:
                return f"{declined.task} declined: {declined.declined}"
            return (
                f"not acknowledged by {format_some(view.waiting_for)}"
                if view.waiting_for
                else "writes its metadata"
            )
        case _:
            why = " ".join(f"{view.failure}: {view.reason}".split())
            return why if len(why) <= _LONGEST_REASON else f"{why[: _LONGEST_REASON - 3]}..."


def format_summary(view: CheckpointsView) -> str:
    """Returns the number of checkpoints by status, and the last restore."""
    in_progress = sum(checkpoint.status.value == "IN_PROGRESS" for checkpoint in view.checkpoints)
    counts = f"{view.completed} completed, {view.failed} failed, {in_progress} in progress"
    restored = view.restored
    return counts if restored is None else f"{counts}; restored {format_restore(restored)}"


def format_restore(restored: RestoreView) -> str:
    """Returns the snapshot that the job last restored, and the newer checkpoints that could not be read."""
    if restored.failure is not None:
        return f"nothing at {format_time(restored.at)}: {restored.failure}"
    skipped = "".join(f"; skipped {uri}: {why}" for uri, why in restored.passed_over.items())
    return f"from {restored.uri or 'nothing'} at {format_time(restored.at)}{skipped}"


def checkpoint_to_data(view: CheckpointView) -> dict[str, Any]:
    """Returns a checkpoint for JSON, with derived values. `duration_ms` is null until the checkpoint ends."""
    data: dict[str, Any] = msgspec.to_builtins(view)
    ended = view.ended
    return {
        **data,
        "duration_ms": None if ended is None else round((ended - view.triggered) / 1000, 3),
        "acknowledged": view.acknowledged,
        "waiting_for": view.waiting_for,
        "bytes_written": view.bytes_written,
    }


def format_some(tasks: list[str]) -> str:
    """Returns the first three task names and the number of the others."""
    left = len(tasks) - _MAX_NAMED
    return ", ".join(tasks[:_MAX_NAMED]) + (f" and {left} more" if left > 0 else "")
