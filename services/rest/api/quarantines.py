"""TaskExecutors and hosts that get no slots: GET /api/v1/quarantines."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...history import cluster_view
from ...resource_manager.quarantines import Quarantine
from ..endpoint import Endpoint, Parameters
from ..moment import Moment


class QuarantineSummary(msgspec.Struct, frozen=True, rename="camel"):
    """A quarantined or drained TaskExecutor, or host. `since` and `until` in milliseconds since the epoch; `until` is
    -1 without an end by rule. `heldSlots`: the slots there that jobs still hold."""

    task_executor: str | None
    host: str | None
    mode: str
    reason: str
    since: int
    until: int
    held_slots: int


class QuarantineSummaries(msgspec.Struct, frozen=True):
    """/api/v1/quarantines"""

    quarantines: Sequence[QuarantineSummary]


def quarantines(moment: Moment, _: Parameters) -> QuarantineSummaries:
    """GET /quarantines: the TaskExecutors and hosts that get no slots, and how many slots there jobs still hold"""
    replica = moment.fold.replica
    known, workers = cluster_view.quarantines(replica), cluster_view.workers(replica)

    def summary(resource_id: str | None, host: str | None, quarantine: Quarantine) -> QuarantineSummary:
        there = [each for each in workers if each.resource_id == resource_id or each.host == host]
        return QuarantineSummary(
            resource_id,
            host,
            quarantine.mode.value,
            quarantine.reason,
            quarantine.since // 1000,
            -1 if quarantine.until is None else quarantine.until // 1000,
            sum(each.slots - each.free_slots for each in there),
        )

    return QuarantineSummaries(
        [
            *(summary(each, None, known.task_executors[each]) for each in sorted(known.task_executors)),
            *(summary(None, each, known.hosts[each]) for each in sorted(known.hosts)),
        ]
    )


READS = (Endpoint("GET", "/quarantines", view=quarantines),)
