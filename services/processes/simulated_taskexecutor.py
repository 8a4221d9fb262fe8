"""The taskexecutor process of a simulated cluster: many TaskExecutors whose tasks do nothing but run.

They register under their resource ids, continue with the slots and tasks from the log, send heartbeats, and leave when
they are asked to, or all together at SIGTERM.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ...infra import threads
from ...infra.logging_setup import logger
from ...schemas import resource_manager
from ..configuration import Configuration
from ..configuration.options.kafka import KafkaUser
from ..core.replica import Replica
from ..core.role import RESOURCE_MANAGER, TASK_EXECUTOR, OutgoingEvent, address
from ..host.host import Host
from ..log.factory import open_event_log
from ..roles import task_executor_roles
from ..simulation.fake_effects import NoOpTaskExecutorEffects
from ..simulation.fork import ForkMember
from ..simulation.heartbeats import MultiplexedHeartbeats, create_heartbeats
from ..simulation.task_events import register_event
from ..task_executor.state import TaskExecutorState
from .clock import ProcessClock
from .process_lifecycle import (
    KAFKA_TIMEOUT_S,
    new_session,
    process_address,
    raise_thread_failure,
    wait_for_topics,
)
from .relay import with_relay
from .snapshots import restore_task_executor

_log = logger(__name__)


def run(configuration: Configuration, members: Sequence[ForkMember], stop: threading.Event) -> None:
    """Runs until `stop` is set or all have left. Raises the errors of Host.run."""
    configuration = configuration.as_user(KafkaUser.TASKMANAGER)
    cluster, own_address = configuration.cluster_id, process_address()
    own = {address(TASK_EXECUTOR, member.resource_id): member for member in members}
    log = open_event_log(configuration, timeout_s=KAFKA_TIMEOUT_S, appends=True)
    replica = Replica(task_executor_roles, only=own.__contains__)
    clock = ProcessClock(configuration)
    host = Host(
        with_relay(configuration, log, replica),
        replica,
        cluster=cluster,
        leads=tuple(own),
        process_address=own_address,
        session=new_session(),
        clock=clock,
        concerns=tuple(own),
    )
    hearts = MultiplexedHeartbeats(host, tuple(own))
    beating = create_heartbeats(configuration, host, hearts)
    shell = NoOpTaskExecutorEffects(host.emit, hearts.follow)

    def register() -> None:
        while not host.leading.wait(0.1):
            if stop.is_set():
                return
        for role_address, member in own.items():
            claim = replica.leadership.leader(role_address)
            owed = register_event(
                member.resource_id,
                member.slots,
                member.profile,
                member.hardware,
                member.configuration,
                process_address=own_address,
                cause=None if claim is None else claim.offset,
            )
            host.emit(role_address, owed)
        _log.info("simulated taskexecutors register", count=len(own))

    registering = threads.Thread(target=register, name="registration")
    with raise_thread_failure(host):
        registering.start()
        _log.info("simulated taskexecutors start", cluster=cluster, count=len(own))
        try:
            wait_for_topics(configuration, stop)
            if stop.is_set():
                return
            clock.start(stop)
            restore_task_executor(configuration, replica, log)
            beating.start()
            host.run(stop, {TASK_EXECUTOR: shell}, finished=lambda known: _have_all_left(known, own))
            for role_address, member in own.items() if stop.is_set() else ():
                reason = f"TaskExecutor {member.resource_id} was asked to stop"
                body = resource_manager.DisconnectTaskManager(resource_id=member.resource_id, reason=reason)
                host.emit(role_address, OutgoingEvent(RESOURCE_MANAGER, body, None))
            _log.info("simulated taskexecutors end", cluster=cluster)
        finally:
            beating.close()
            clock.close()
            stop.set()
            registering.join()
            host.close()
            log.close()


def _have_all_left(replica: Replica, own: dict[str, ForkMember]) -> bool:
    states = [replica.states.get(role_address) for role_address in own]
    return all(isinstance(state, TaskExecutorState) and state.left for state in states)
