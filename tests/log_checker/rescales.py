"""A job runs at another parallelism only after a cut: a checkpoint behind which all its tasks stood still.

A rescale begins with RescaleStarted and ends with its answer. Its cut is complete when all tasks have acknowledged it;
with the next CheckpointRestored the job has its new parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .events import Event


@dataclass(slots=True)
class Rescale:
    """The rescale of a job that is in progress."""

    parallelism: Mapping[str, int]
    request: int | None
    is_adaptive: bool = False
    """Whether the adaptive scheduler has decided it."""
    cut: int | None = None
    """The checkpoint, from its trigger on."""
    is_cut: bool = False
    """Whether the cut is complete."""
    is_over: bool = False
    """Whether the job has the new parallelism."""


class Rescales:
    """The rescales of every job so far."""

    def __init__(self) -> None:
        self._current: dict[str, Rescale] = {}

    def see(self, event: Event) -> Iterator[str]:
        match event.name:
            case "job_master.RescaleStarted":
                self._starts(event)
            case "job_master.CheckpointTriggered" if is_cut(event):
                current = self._current.get(event["job_id"])
                if current is not None and not current.is_cut:
                    current.cut = event["checkpoint_id"]
            case "job_master.CheckpointCompleted":
                current = self._current.get(event["job_id"])
                if current is not None and current.cut == event["checkpoint"]["checkpoint_id"]:
                    current.is_cut = True
            case "client.JobStatusChanged" if event["status"] == "RESTARTING":
                yield from self._restarts(event)
            case "client.RescaleFailed" | "client.JobRescaled":
                current = self._current.get(event["job_id"])
                if current is not None and current.request == event.cause:
                    del self._current[event["job_id"]]
                    if event.name == "client.JobRescaled" and not current.is_over:
                        yield f"{event['job_id']} is said to be rescaled, but has not begun from its cut"

    def _starts(self, event: Event) -> None:
        current, is_adaptive = self._current.get(event["job_id"]), event.body.get("is_adaptive", False)
        # A decision of the adaptive scheduler that a change of the job has overtaken starts nothing.
        is_free = current is None or (current.is_adaptive and current.cut is None)
        if not is_free or not event.body.get("has_cut", True):
            return
        request = event.offset if is_adaptive else event.cause
        rescale = Rescale(event["parallelism"], request, is_adaptive=is_adaptive)
        rescale.is_over = not event["parallelism"]
        self._current[event["job_id"]] = rescale

    def end(self) -> Iterator[str]:
        return iter(())

    def take_change(self, job_id: str) -> Mapping[str, int]:
        """Returns the vertices that get another parallelism as the job begins from a checkpoint."""
        current = self._current.get(job_id)
        if current is None or not current.is_cut or current.is_over:
            return {}
        current.is_over = True
        return current.parallelism

    def _restarts(self, event: Event) -> Iterator[str]:
        current = self._current.get(event["job_id"])
        reason = str(event.body.get("reason") or "")
        if reason.startswith("rescaled") and (current is None or not current.is_cut):
            yield f"{event['job_id']} is RESTARTING as rescaled, but no cut is complete"


def is_cut(event: Event) -> bool:
    """Returns whether this CheckpointTriggered is about the cut of a rescale."""
    options = event["options"]
    return bool(options.get("stops")) and options["snapshot_type"] == "CHECKPOINT"
