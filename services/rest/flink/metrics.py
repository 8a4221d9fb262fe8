"""The counts of tasks, and the endpoints of metrics.

The log has the counts of a subtask from its end on. A running one is shown with zeros that are not complete, as Flink
shows metrics that it does not have yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ...history.execution_history import AttemptView, ExecutionGraphView
from ..moment import Moment
from .lookup import Parameters, find_graph, find_job, find_vertex

_RECORDS_IN, _RECORDS_OUT = "numRecordsIn", "numRecordsOut"


class IoMetrics(msgspec.Struct, frozen=True, rename="kebab"):
    """Flink's IOMetricsInfo. The log has no sizes and no busy times: these are 0, and never complete."""

    read_bytes: int = 0
    read_bytes_complete: bool = False
    write_bytes: int = 0
    write_bytes_complete: bool = False
    read_records: int = 0
    read_records_complete: bool = False
    write_records: int = 0
    write_records_complete: bool = False
    accumulated_backpressured_time: int = 0
    accumulated_idle_time: int = 0
    accumulated_busy_time: float = 0.0


class Metric(msgspec.Struct, frozen=True):
    """The name of a metric, and its value if it was asked for."""

    id: str
    value: str | msgspec.UnsetType = msgspec.UNSET


def io_metrics(graph: ExecutionGraphView, attempts: Iterable[AttemptView]) -> IoMetrics:
    """Returns the sum of the counts of the attempts; complete if all have reported theirs."""
    counts = [graph.counts.get(f"{each.vertex_id}/{each.subtask_index}") for each in attempts]
    known = [count for count in counts if count is not None]
    is_complete = bool(counts) and len(known) == len(counts)
    return IoMetrics(
        read_records=int(sum(count.get(_RECORDS_IN, 0) for count in known)),
        read_records_complete=is_complete,
        write_records=int(sum(count.get(_RECORDS_OUT, 0) for count in known)),
        write_records_complete=is_complete,
    )


def no_metrics(_moment: Moment, _: Parameters) -> Sequence[Metric]:
    """The log has no metrics: the list is empty"""
    return ()


def no_job_metrics(moment: Moment, parameters: Parameters) -> Sequence[Metric]:
    """The log has no metrics of a job: the list is empty"""
    find_job(moment, parameters)
    return ()


def no_vertex_metrics(moment: Moment, parameters: Parameters) -> Sequence[Metric]:
    """The log has no metrics of a vertex: the list is empty"""
    _, view = find_job(moment, parameters)
    find_vertex(find_graph(moment, view), parameters)
    return ()
