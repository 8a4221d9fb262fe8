"""The heartbeats of many TaskExecutors in one process."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from _simulated import running

from tailrace.schemas.event import EVERYONE, Record
from tailrace.services import connections
from tailrace.services.configuration import Configuration
from tailrace.services.configuration.options.heartbeat import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT
from tailrace.services.host import Host
from tailrace.services.liveness.heartbeats import Heartbeats
from tailrace.services.liveness.monitor import HeartbeatMonitor
from tailrace.services.liveness.task_executor import TaskExecutorHeartbeats
from tailrace.services.liveness.topic import TASK_EXECUTORS
from tailrace.services.roles import Owed
from tailrace.services.task_executor.contradictions import slot_contradictions


class Hearts:
    """The heartbeats of all TaskExecutors over one connection: each hears what is said to it, as if it had its own.

    The masters are watched by all of them together.
    """

    def __init__(self, host: Host, own: Sequence[str]) -> None:
        self._of = {
            each: TaskExecutorHeartbeats(
                host.say,
                each,
                slot_report=lambda state: state.slots.report(state.resource_id),
                running=running,
                slot_contradictions=slot_contradictions,
            )
            for each in own
        }

    def follow(self, role_address: str, state: Any) -> None:
        """From the host's thread: the TaskExecutor's newest state."""
        self._of[role_address].follow(state)

    def update(self, monitor: HeartbeatMonitor[Any], now: int) -> None:
        for each in self._of.values():
            each.update(monitor, now)

    def beats(self, position: int) -> Iterable[tuple[str, Sequence[Owed]]]:
        for each in self._of.values():
            yield from each.beats(position)

    def hear(self, record: Record) -> Hashable | None:
        if record.header.recipient != EVERYONE:
            return self._of[record.header.recipient].hear(record)
        heard = [target for each in self._of.values() if (target := each.hear(record)) is not None]
        return heard[0] if heard else None

    def is_mine(self, target: Hashable) -> bool:
        return any(each.is_mine(target) for each in self._of.values())

    def timed_out(self, target: Hashable, silence: int) -> None:
        for each in self._of.values():
            each.timed_out(target, silence)


def beating_of(configuration: Configuration, host: Host, hearts: Hearts) -> Heartbeats:
    return Heartbeats(
        lambda: connections.heartbeats(configuration, reads=TASK_EXECUTORS, wanted=lambda _: True),
        [hearts],
        interval=configuration.get(HEARTBEAT_INTERVAL),
        timeout=configuration.get(HEARTBEAT_TIMEOUT),
        seal=host.sealed,
        position=lambda: host.position,
        ready=host.leading.is_set,
    )
