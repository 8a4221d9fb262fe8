"""The result of a simulation as the REST API has it."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.role import Time
from ...rest.api.what_if_result import (
    WhatIfJob,
    WhatIfJobOutcome,
    WhatIfPeriod,
    WhatIfResult,
    WhatIfSlot,
    WhatIfSlots,
    WhatIfSpan,
)
from ...rest.flink import ids
from .differences import describe_differences
from .outcome_metrics import JobOutcome, Outcome
from .report import describe_end, format_duration
from .slot_history import HeldTask, SlotHistory, SlotSpan
from .what_if import WhatIf


def create_result(found: WhatIf) -> WhatIfResult:
    """Returns the result. Jobs are in the order of their submission, those of the simulation only come last."""
    names: dict[str, str] = {}
    for outcome in _outcomes(found):
        for job in outcome.jobs:
            names[job.job_id] = job.name or names.get(job.job_id, "")
        for slot in outcome.held.slots:
            for span in slot.spans:
                # A job that ended before the start may hold a slot for a moment.
                names.setdefault(span.job_id, "")
    places = {job_id: place for place, job_id in enumerate(names)}
    return WhatIfResult(
        offset=found.offset,
        start=_to_ms(found.would.start),
        end=_to_ms(found.would.end),
        events=len(found.log),
        jobs=[WhatIfJob(ids.to_job_id(job_id), job_id, name or job_id) for job_id, name in names.items()],
        outcomes=[
            _job_outcome(outcome, job, places[job.job_id], is_simulated=outcome is found.would)
            for outcome in _outcomes(found)
            for job in outcome.jobs
        ],
        really=None if found.really is None else _slots(found.really.held, places),
        what_if=_slots(found.would.held, places),
        differences=describe_differences(found),
        notes=found.notes,
    )


def _outcomes(found: WhatIf) -> tuple[Outcome, ...]:
    return (found.would,) if found.really is None else (found.really, found.would)


def _job_outcome(outcome: Outcome, job: JobOutcome, place: int, *, is_simulated: bool) -> WhatIfJobOutcome:
    return WhatIfJobOutcome(
        job=place,
        is_simulated=is_simulated,
        ended=describe_end(outcome, job),
        waited_for_slots=format_duration(job.waited),
        restarts=job.restarts,
        interrupted=format_duration(job.interrupted),
    )


def _slots(history: SlotHistory, places: Mapping[str, int]) -> WhatIfSlots:
    return WhatIfSlots(
        _to_ms(history.end),
        [
            WhatIfSlot(
                slot.resource_id,
                slot.slot,
                [WhatIfPeriod(_to_ms(start), _to_ms(end)) for start, end in slot.present],
                # Shorter ones are not seen in a diagram.
                [_span(span, places) for span in slot.spans if _to_ms(span.start) < _to_ms(span.end)],
            )
            for slot in history.slots
        ],
    )


def _span(span: SlotSpan, places: Mapping[str, int]) -> WhatIfSpan:
    return WhatIfSpan(
        start=_to_ms(span.start),
        end=_to_ms(span.end),
        job=places[span.job_id],
        attempt=max((task.attempt for task in span.tasks), default=0),
        tasks=[_describe(task) for task in span.tasks],
    )


def _describe(task: HeldTask) -> str:
    attempt = f", attempt {task.attempt + 1}" if task.attempt else ""
    return f"{task.vertex}, subtask {task.subtask}{attempt}"


def _to_ms(time: Time) -> int:
    return time // 1000
