"""Sends the heartbeats of many TaskExecutors from one process."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from ...infra.config.option_types import Duration
from ...schemas.event import EVERYONE, Record
from ..configuration import Configuration
from ..configuration.options.heartbeat import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT
from ..core.role import OutgoingEvent
from ..heartbeats.factory import kafka_heartbeats
from ..heartbeats.manager import HeartbeatManager
from ..heartbeats.monitor import HeartbeatMonitor
from ..heartbeats.task_executor import Running, TaskExecutorHeartbeats
from ..heartbeats.topic import TASK_EXECUTORS
from ..host.host import Host
from ..task_executor.slot_reconciliation import slot_contradictions
from .task_events import running_report


class MultiplexedHeartbeats:
    """The heartbeats of all TaskExecutors over one connection: each receives its own, as over a connection of its own.

    One timeout of a master counts for all of them.
    """

    def __init__(self, host: Host, own: Sequence[str], running: Running = running_report) -> None:
        self._senders = {
            sender: TaskExecutorHeartbeats(
                host.emit,
                sender,
                slot_report=lambda state: state.slots.report(state.resource_id),
                running=running,
                slot_contradictions=slot_contradictions,
            )
            for sender in own
        }

    def follow(self, role_address: str, state: Any) -> None:
        """Takes the newest state of a TaskExecutor. Called on the host's thread."""
        self._senders[role_address].follow(state)

    def update(self, monitor: HeartbeatMonitor[Any], now: int) -> None:
        for sender in self._senders.values():
            sender.update(monitor, now)

    def heartbeats_to_send(self, position: int) -> Iterable[tuple[str, Sequence[OutgoingEvent]]]:
        for sender in self._senders.values():
            yield from sender.heartbeats_to_send(position)

    def on_heartbeat(self, record: Record) -> Hashable | None:
        if record.header.recipient != EVERYONE:
            own = self._senders.get(record.header.recipient)
            return None if own is None else own.on_heartbeat(record)
        found = [
            target for sender in self._senders.values() if (target := sender.on_heartbeat(record)) is not None
        ]
        return found[0] if found else None

    def owns(self, target: Hashable) -> bool:
        return any(sender.owns(target) for sender in self._senders.values())

    def on_timeout(self, target: Hashable, silence: Duration) -> None:
        for sender in self._senders.values():
            sender.on_timeout(target, silence)


def create_heartbeats(
    configuration: Configuration, host: Host, hearts: MultiplexedHeartbeats
) -> HeartbeatManager:
    """Returns their connection, not started yet."""
    return HeartbeatManager(
        lambda: kafka_heartbeats(configuration, reads=TASK_EXECUTORS, wanted=lambda _: True),
        [hearts],
        interval=configuration.get(HEARTBEAT_INTERVAL),
        timeout=configuration.get(HEARTBEAT_TIMEOUT),
        seal=host.with_headers,
        accepts=host.accepts_heartbeat,
        position=lambda: host.position,
        ready=host.leading.is_set,
        idle_s=lambda: host.idle_s,
    )
