"""Reads what tasks have counted from the diagnostics servers of TaskExecutors, as REST servers do."""

from __future__ import annotations

from ..configuration import Configuration
from ..core.role import RESOURCE_MANAGER
from ..diagnostics.client import DiagnosticsClient, ServerAddress
from ..host.host import Host
from ..job_master.autoscaler.task_meter import Counts, TaskCounts
from ..resource_manager.state import ResourceManagerState
from ..rest.live_metrics import Values
from ..rest.metric_fetcher import MetricFetcher

_INTERVAL_S = 0.5
_MILLISECONDS = 1_000


class TaskExecutorCounts:
    """A TaskCountsReader of the TaskExecutors that are registered."""

    def __init__(self, configuration: Configuration, host: Host) -> None:
        self._host = host
        self._fetcher = MetricFetcher(DiagnosticsClient.from_configuration(configuration), _INTERVAL_S)

    def read(self, job_id: str) -> Counts:
        """Returns the counts of all subtasks whose TaskExecutors answer."""
        state = self._host.state(RESOURCE_MANAGER)
        workers = state.workers.values() if isinstance(state, ResourceManagerState) else ()
        addresses = {
            each.resource_id: ServerAddress(each.diagnostics_address, each.address) for each in workers
        }
        tasks = self._fetcher.fetch(addresses).tasks
        return {
            (key.vertex_id, key.subtask_index): _counts(values)
            for key, values in tasks.items()
            if key.job_id == job_id
        }

    def close(self) -> None:
        """Ends the threads."""
        self._fetcher.close()


def _counts(values: Values) -> TaskCounts:
    return TaskCounts(
        records_in=values.get("numRecordsIn", 0.0),
        records_out=values.get("numRecordsOut", 0.0),
        busy_s=values.get("accumulateBusyTimeMs", 0.0) / _MILLISECONDS,
        idle_s=values.get("accumulateIdleTimeMs", 0.0) / _MILLISECONDS,
        back_pressured_s=values.get("accumulateBackPressuredTimeMs", 0.0) / _MILLISECONDS,
        pending_records=values.get("pendingRecords"),
        position=values.get("currentOffset"),
        partitions=values.get("assignedPartitions"),
        counted_s=_seconds(values, "accumulateCountedTimeMs"),
        counted_busy_s=_seconds(values, "accumulateCountedBusyTimeMs"),
    )


def _seconds(values: Values, name: str) -> float | None:
    milliseconds = values.get(name)
    return None if milliseconds is None else milliseconds / _MILLISECONDS
