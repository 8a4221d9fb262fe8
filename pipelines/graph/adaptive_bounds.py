"""The bounds of the parallelism of a job with the adaptive scheduler, as it is submitted."""

from __future__ import annotations

from collections.abc import Mapping

from ...schemas.types import JobGraph, ParallelismBounds
from . import execution_mode
from .adaptive_scheduler_options import SCHEDULER, SCHEDULER_MODE, Scheduler, SchedulerExecutionMode
from .job_options import CHECKPOINTS_DIRECTORY, ScheduleMode
from .parallelism import parallel_vertices, vertices_at_default


def adaptive_bounds(
    graph: JobGraph, configuration: Mapping[str, str], *, may_take_all: bool
) -> dict[str, ParallelismBounds]:
    """Returns the bounds of each vertex that may have another parallelism; none for a job with the default scheduler.

    A job in stages uses the slots that there are anyway, and without a directory for checkpoints no job is rescaled.
    `may_take_all`: whether the job may take slots above the parallelism of its program.
    """
    is_reactive = SCHEDULER_MODE.of(configuration) is SchedulerExecutionMode.REACTIVE
    if SCHEDULER.of(configuration) is not Scheduler.ADAPTIVE and not is_reactive:
        return {}
    is_eager = execution_mode.schedule_mode(configuration) is ScheduleMode.EAGER
    if not is_eager or not CHECKPOINTS_DIRECTORY.of(configuration):
        return {}
    growing = vertices_at_default(graph) if is_reactive and may_take_all else frozenset()
    return {
        vertex.vertex_id: ParallelismBounds(
            lower_bound=1,
            upper_bound=vertex.max_parallelism if vertex.vertex_id in growing else vertex.parallelism,
        )
        for vertex in parallel_vertices(graph)
    }
