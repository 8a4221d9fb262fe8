"""The jobmanager process: Dispatcher, ResourceManager and the JobMasters of all jobs, led together.

Killed at any moment it loses nothing: the next one folds the log, takes the next epoch, and says what is still owed;
tasks run on meanwhile. It may start before Kafka. SIGTERM stops the process, not the cluster; the cluster ends by
ShutDownCluster.
"""

from __future__ import annotations

import threading

import structlog

from ..configuration import Configuration
from ..connections import admin, event_log, registry
from ..dispatcher import Dispatcher
from ..dispatcher.shell import DispatcherShell
from ..dispatcher.submissions import SubmissionsReader
from ..host import Host, wall_clock
from ..job_master import JobMaster
from ..job_master.shell import JobMasterShell
from ..job_master.state import JobMasterState, Progress
from ..liveness.process_watch import ProcessWatch
from ..log import Codec
from ..log.dead_letters import DeadLetters
from ..log.topics import submissions_topic
from ..replica import Replica
from ..resource_manager import ResourceManager
from ..resource_manager.drivers.table import new_driver
from ..resource_manager.shell import ResourceManagerShell
from ..resource_manager.state import ResourceManagerState
from ..roles import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, Shell
from . import liveness
from .process import KAFKA_PATIENCE_S, process_address, session, wait_for_topics

_log = structlog.get_logger(__name__)


def run(configuration: Configuration, stop: threading.Event) -> None:
    """Runs until `stop` is set or the cluster has ended. Raises what Host.run raises."""
    cluster = configuration.cluster_id
    wait_for_topics(configuration, stop)
    if stop.is_set():
        return
    kafka_admin = admin(configuration)
    log = event_log(configuration, timeout=KAFKA_PATIENCE_S)
    letters = DeadLetters(configuration.bootstrap_servers, cluster)
    host = Host(
        log,
        Replica([Dispatcher(), ResourceManager(), JobMaster()]),
        cluster=cluster,
        leads=(DISPATCHER, RESOURCE_MANAGER, JOB_MASTER),
        process_address=process_address(),
        session=session(),
        on_unreadable=lambda unreadable: letters.write(unreadable, wall_clock()),
    )
    submissions = SubmissionsReader(
        bootstrap_servers=configuration.bootstrap_servers,
        cluster=cluster,
        codec=Codec(submissions_topic(cluster), registry(configuration)),
        log=log,
        say=host.say,
        write_dead_letter=letters.write,
        clock=wall_clock,
        on_failure=host.fail,
    )
    beating, of_workers, of_jobs = liveness.of_masters(configuration, host)
    shells: dict[str, Shell] = {
        DISPATCHER: DispatcherShell(host.say, submissions, configuration.as_map()),
        RESOURCE_MANAGER: ResourceManagerShell(
            host.say,
            lambda on_exit: new_driver(configuration, on_exit),
            ProcessWatch,
            of_workers.follow,
        ),
        JOB_MASTER: JobMasterShell(host.say, kafka_admin, cluster, of_jobs.follow),
    }
    _log.info("jobmanager starts", cluster=cluster, kafka=configuration.bootstrap_servers)
    try:
        beating.start()
        host.run(stop, shells, finished=_ended)
        _log.info("jobmanager ends", cluster=cluster)
    finally:
        beating.close()
        for shell in shells.values():
            shell.close()
        host.close()
        log.close()


def _ended(replica: Replica) -> bool:
    """Whether the cluster has been terminated and nothing of its jobs is left to be cleared away."""
    state = replica.states.get(RESOURCE_MANAGER)
    if not isinstance(state, ResourceManagerState) or state.ending is None or not state.ending.over:
        return False
    return not any(
        isinstance(each, JobMasterState)
        and (each.deletion is Progress.OWED or each.checkpoints.removal is not None)
        for each in replica.states.values()
    )
