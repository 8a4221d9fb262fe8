"""Assembles the heartbeats of each kind of process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...schemas.event import EVERYONE
from ..configuration import Configuration
from ..configuration.options.heartbeat import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT
from ..core.role import RESOURCE_MANAGER
from ..heartbeats.factory import kafka_heartbeats
from ..heartbeats.job_masters import JobMasterHeartbeats
from ..heartbeats.manager import HeartbeatManager, HeartbeatSender
from ..heartbeats.resource_manager import ResourceManagerHeartbeats, workers_in_grace
from ..heartbeats.task_executor import Running, TaskExecutorHeartbeats
from ..heartbeats.topic import MASTERS, TASK_EXECUTORS
from ..host.host import Host
from ..job_master.heartbeat_reports import allocated_slot_report, missing_tasks
from ..resource_manager.slot_reports import is_contradiction
from ..task_executor.slot_reconciliation import slot_contradictions


def create_master_heartbeats(
    configuration: Configuration, host: Host
) -> tuple[HeartbeatManager, ResourceManagerHeartbeats, JobMasterHeartbeats]:
    """Returns the heartbeats of a jobmanager, not started yet. The shells publish states to the latter two."""
    workers = ResourceManagerHeartbeats(host.emit, is_contradiction)
    jobs = JobMasterHeartbeats(
        host.emit,
        missing_tasks,
        allocated_slot_report,
        lambda: workers_in_grace(host.state(RESOURCE_MANAGER)),
    )
    return _create_heartbeats(configuration, host, MASTERS, lambda _: True, [workers, jobs]), workers, jobs


def create_task_executor_heartbeats(
    configuration: Configuration, host: Host, own_address: str, resource_id: str, running: Running
) -> tuple[HeartbeatManager, TaskExecutorHeartbeats]:
    """Returns the heartbeats of a taskexecutor, not started yet. The shell publishes states to the latter."""
    own = TaskExecutorHeartbeats(
        host.emit,
        own_address,
        slot_report=lambda state: state.slots.report(resource_id),
        running=running,
        slot_contradictions=slot_contradictions,
    )
    to_us = frozenset((own_address, EVERYONE))
    return _create_heartbeats(configuration, host, TASK_EXECUTORS, to_us.__contains__, [own]), own


def _create_heartbeats(
    configuration: Configuration,
    host: Host,
    reads: int,
    wanted: Callable[[str], bool],
    participants: Sequence[HeartbeatSender],
) -> HeartbeatManager:
    return HeartbeatManager(
        lambda: kafka_heartbeats(configuration, reads=reads, wanted=wanted),
        participants,
        interval=configuration.get(HEARTBEAT_INTERVAL),
        timeout=configuration.get(HEARTBEAT_TIMEOUT),
        seal=host.with_headers,
        accepts=host.accepts_heartbeat,
        position=lambda: host.position,
        ready=host.leading.is_set,
        idle_s=lambda: host.idle_s,
    )
