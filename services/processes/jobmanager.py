"""The jobmanager process: it leads the Dispatcher, the ResourceManager and JobMasters, or is a standby.

It loses nothing if it is killed: the next one folds the log, claims the next epoch, and sends the events that are due;
tasks keep running. With `high-availability.type: zookeeper` or `kubernetes` any number of warm standbys may run, and
one leads all roles; without it the newest process leads everything, and the previous one ends. It may start before
Kafka. SIGTERM stops the process, not the cluster; ShutDownCluster stops the cluster. A process that ends first returns
its leadership, so that another one is elected within a second, and then finishes its running work. It does so also
while its loop waits for Kafka.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ...infra.closing import Closeable
from ...infra.logging_setup import logger
from ...schemas.types import JobStatus
from ..blobs.tiered_store import TieredBlobStore
from ..configuration import Configuration
from ..configuration.options.blob import BLOB_INLINE_SIZE_MAX, BLOB_OFFLOAD_MINSIZE
from ..configuration.options.cluster import OUTPUT_RETENTION
from ..configuration.options.high_availability import ABANDON_ELECTION
from ..configuration.options.kafka import KafkaUser
from ..configuration.options.tenants import TENANTS
from ..configuration.options.topics import ACCEPTED_SETTINGS
from ..configuration.role_options import DispatcherOptions
from ..core.leadership import LeadershipState
from ..core.observed_replica import ObservedReplica, ReplicaObserver
from ..core.replica import OnFalseHeader, Replica
from ..core.role import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, REST_SERVER, Emit, Shell, address
from ..diagnostics.server import ENDPOINT as DIAGNOSTICS_ENDPOINT
from ..dispatcher.admission import SubmissionsReader
from ..dispatcher.answers_publisher import AnswersPublisher
from ..dispatcher.inline_limit import InlineLimit
from ..dispatcher.job_topic_cleaner import JobTopicCleaner, delete_job_topics
from ..dispatcher.savepoints import SavepointDisposer, dispose_savepoint
from ..dispatcher.shell import DispatcherShell
from ..dispatcher.state import DispatcherState
from ..election.factory import create_leader_election
from ..election.leader_information import LeaderInformation
from ..election.log_liveness import LivenessTrackingLog
from ..heartbeats.local_process_monitor import LocalProcessMonitor
from ..host.host import Host
from ..host.per_term_shell import PerTermShell
from ..job_master.autoscaler.task_meter import TaskMeter
from ..job_master.cleanup import needs_cleanup
from ..job_master.shell import JobMasterShell
from ..job_master.state import JobMasterState
from ..log.dead_letters import DeadLetters
from ..log.event_log import EventLog, Unreadable
from ..log.factory import create_admin_client, open_event_log
from ..log.factory import create_codec as codec_of
from ..log.false_headers import report_false_headers
from ..log.kafka_release import warn_of_faulty_brokers
from ..log.topic_options import TopicOptions
from ..log.topic_validation import check_topics
from ..log.topics import answers_topics, describe_topics, submissions_topic
from ..metrics.event_totals import EventTotals
from ..metrics.samples import Sample
from ..resource_manager.drivers import ClusterEnd, WorkerDrivers
from ..resource_manager.drivers.factory import create_drivers
from ..resource_manager.shell import ResourceManagerShell
from ..resource_manager.state import ResourceManagerState
from ..roles import master_roles
from ..snapshots.recovery import read_newest_leadership
from ..snapshots.store import SnapshotStore
from ..yarn.job_file import JobFile
from . import heartbeats, metrics
from .blobs import create_master_blobs
from .clock import ProcessClock
from .diagnostics import serve_diagnostics
from .feature_level_check import check_level
from .index_validation import index_errors
from .job_submitter import JobSubmitter
from .process_lifecycle import (
    EMIT_TIMEOUT_S,
    END_TIMEOUT_S,
    KAFKA_TIMEOUT_S,
    create_topic_watch,
    exit_within,
    hand_over_on_stop,
    new_session,
    process_address,
    raise_thread_failure,
    wait_for_topics,
)
from .relay import create_relay
from .rest import ENDPOINT as REST_ENDPOINT
from .rest import create_master_rest
from .snapshots import MasterSnapshots
from .task_counts import TaskExecutorCounts
from .traces import create_trace_reporter

_log = logger(__name__)
_JOB_END_PAUSE_S = 1.0
_LEAVE_PAUSE_S = 0.1


FollowJobMaster = Callable[[str, JobMasterState], None]
"""(address, state) of a JobMaster that is led here, whenever it changes."""
RetireJobMaster = Callable[[str], None]
"""The address of a JobMaster that is not led here any more."""


class MasterEffects(NamedTuple):
    """The side effects of a jobmanager that a simulated cluster replaces (simulated_jobmanager.py)."""

    create_job_master_shell: Callable[
        [Configuration, Host, FollowJobMaster, RetireJobMaster, TieredBlobStore], Shell
    ]
    dispose_savepoint: SavepointDisposer = dispose_savepoint
    deletes_job_topics: bool = True


def create_job_master_shell(
    configuration: Configuration,
    host: Host,
    follow: FollowJobMaster,
    retire: RetireJobMaster,
    blobs: TieredBlobStore,
) -> Shell:
    """Returns the shell of real JobMasters."""
    return JobMasterShell(
        host.emit,
        create_admin_client(configuration),
        configuration.cluster_id,
        configuration.get(OUTPUT_RETENTION),
        follow,
        retire,
        lambda: host.is_current,
        blobs,
        TopicOptions.from_configuration(configuration),
        TaskMeter(host.emit, TaskExecutorCounts(configuration, host)),
    )


_REAL_EFFECTS = MasterEffects(create_job_master_shell)


def run(
    configuration: Configuration,
    stop: threading.Event,
    effects: MasterEffects = _REAL_EFFECTS,
    job: JobFile | None = None,
) -> None:
    """Runs until `stop` is set or the cluster has terminated. `job`: the one that the cluster runs for, in application
    mode. Raises the errors of Host.run."""
    configuration = configuration.as_user(KafkaUser.JOBMANAGER)
    cluster = configuration.cluster_id
    wait_for_topics(configuration, stop)
    if stop.is_set():
        return
    accepted, tenants = configuration.get(ACCEPTED_SETTINGS).split(","), configuration.get(TENANTS)
    check_topics(create_admin_client(configuration), cluster, accepted, tenants)
    warn_of_faulty_brokers(configuration.kafka)
    own_address, own_session, clock = process_address(), new_session(), ProcessClock(configuration)
    letters = DeadLetters(configuration.kafka, cluster, leads=lambda: host.leads(DISPATCHER))
    own_log = open_event_log(configuration, timeout_s=KAFKA_TIMEOUT_S, appends=True)
    own_log.codec.register_all()

    def write_letter(unreadable: Unreadable) -> None:
        letters.post(unreadable, clock())

    totals = EventTotals()
    traces = create_trace_reporter(
        configuration, own_log, lambda: host.position >= 0, lambda: host.leads(DISPATCHER)
    )
    observers: list[ReplicaObserver] = [totals] if metrics.is_enabled(configuration) else []
    if traces is not None:
        observers.append(traces)
    replica = create_master_replica(
        configuration, observers, report_false_headers(own_log.topic, own_log.codec, write_letter)
    )
    blobs = create_master_blobs(configuration, replica, lambda: host.position >= 0)
    relay = create_relay(configuration, own_log)
    rest = create_master_rest(configuration)

    def collect() -> Iterable[Sample]:
        return metrics.collect_jobmanager(configuration, host, replica, totals, own_log, clock, traces)

    diagnostics = serve_diagnostics(configuration, collect)
    endpoints = {
        **blobs.endpoints,
        **({} if diagnostics is None else {DIAGNOSTICS_ENDPOINT: diagnostics.address}),
        **({} if relay is None else relay.endpoints),
        **({} if rest is None else {REST_ENDPOINT: rest.address}),
    }
    log = LivenessTrackingLog(own_log)
    me = LeaderInformation(own_address, own_session, endpoints=endpoints)
    roles = (DISPATCHER, RESOURCE_MANAGER, REST_SERVER)
    election = create_leader_election(configuration, me, roles, log)
    host = Host(
        log,
        replica,
        cluster=cluster,
        leads=roles,
        process_address=own_address,
        session=own_session,
        election=election,
        endpoints=endpoints,
        clock=clock,
        on_unreadable=write_letter,
        abandons_election=configuration.get(ABANDON_ELECTION),
    )
    drivers = create_drivers(configuration, "" if rest is None else rest.url, host.fail)
    codec = codec_of(configuration, submissions_topic(cluster))
    beating, of_workers, of_jobs = heartbeats.create_master_heartbeats(configuration, host)

    def dispatcher_shell(say: Emit, _settled: Callable[[], None]) -> DispatcherShell:
        inline = InlineLimit(
            blobs.depot, configuration.get(BLOB_OFFLOAD_MINSIZE), configuration.get(BLOB_INLINE_SIZE_MAX)
        )
        submissions = SubmissionsReader(
            kafka=configuration.kafka,
            cluster=cluster,
            codec=codec,
            log=log,
            say=say,
            write_dead_letter=letters.write,
            clock=clock,
            inline=inline,
            tenants=DispatcherOptions.from_configuration(configuration.as_map()).tenants,
            on_failure=host.fail,
        )
        claim = replica.leadership.leader(DISPATCHER)
        elected = None if claim is None else claim.offset
        return DispatcherShell(
            say,
            submissions,
            configuration.as_map(),
            blobs.depot,
            elected,
            effects.dispose_savepoint,
            inline,
            delete_job_data,
            lambda level: check_level(
                level,
                configuration,
                replica.leadership,
                state
                if isinstance(state := host.state(RESOURCE_MANAGER), ResourceManagerState)
                else ResourceManagerState(),
            ),
        )

    def delete_job_data(job_ids: Sequence[str], closed: threading.Event) -> None:
        while any(replica.is_active(address(JOB_MASTER, job_id)) for job_id in job_ids):
            if closed.wait(_JOB_END_PAUSE_S):
                return
        if effects.deletes_job_topics:
            delete_job_topics(create_admin_client(configuration), cluster, job_ids)
        blobs.delete_jobs(job_ids)

    def resource_manager_shell(say: Emit, settled: Callable[[], None]) -> ResourceManagerShell:
        return ResourceManagerShell(
            say,
            drivers.create,
            LocalProcessMonitor,
            of_workers.follow,
            settled,
        )

    shells: dict[str, Shell] = {
        DISPATCHER: PerTermShell(host.emit, dispatcher_shell),
        RESOURCE_MANAGER: PerTermShell(host.emit, resource_manager_shell, of_workers.retire),
        JOB_MASTER: effects.create_job_master_shell(
            configuration, host, of_jobs.follow, of_jobs.retire, blobs.depot
        ),
    }
    _log.info("jobmanager starts", cluster=cluster, kafka=str(configuration.kafka))
    snapshots: MasterSnapshots | None = None
    served_metrics: Closeable | None = None
    topics = create_topic_watch(configuration, host)
    job_topics = JobTopicCleaner(
        create_admin_client(configuration),
        cluster,
        configuration.get(OUTPUT_RETENTION),
        lambda: _find_led_dispatcher(host),
        clock,
    )
    answers = create_answers_publishers(configuration, own_log, lambda: host.leads(DISPATCHER))
    submitter = None if job is None else JobSubmitter(configuration, job, lambda: _find_led_dispatcher(host))
    loop_ended = threading.Event()
    if election is not None:
        hand_over_on_stop(stop, loop_ended, election)
    with raise_thread_failure(host):
        try:
            clock.start(stop)
            served_metrics = metrics.serve_prometheus(configuration, collect, host)
            snapshots = MasterSnapshots(configuration, replica, own_log, host, clock)
            snapshots.start()
            beating.start()
            topics.start()
            blobs.start()
            if relay is not None:
                relay.start()
            if effects.deletes_job_topics:
                job_topics.start()
            for publisher in answers:
                publisher.start()
            if traces is not None:
                traces.start()
            if submitter is not None:
                submitter.start()
            host.run(
                stop,
                shells,
                finished=lambda replica: _has_ended(replica, drivers),
                leaves=lambda replica: _leave_ended(replica, drivers, stop),
            )
            _log.info("jobmanager ends", cluster=cluster)
        finally:
            loop_ended.set()
            with exit_within(END_TIMEOUT_S, sys.exc_info()[1]):
                # Let another process lead at once. The next leader's shell performs the instructions that remain.
                host.close(EMIT_TIMEOUT_S)
                if election is not None:
                    election.close()
                if snapshots is not None:
                    snapshots.close()
                for server in (submitter, served_metrics, diagnostics, traces, relay, rest):
                    if server is not None:
                        server.close()
                beating.close()
                for publisher in answers:
                    publisher.close()
                job_topics.close()
                topics.close()
                for shell in shells.values():
                    shell.close()
                drivers.close()
                clock.close()
                blobs.close()
                log.close()


def create_master_replica(
    configuration: Configuration, observers: Sequence[ReplicaObserver], on_false_header: OnFalseHeader
) -> Replica:
    """Returns the replica of all roles, with observers of its events."""
    errors = index_errors(configuration)
    if not observers:
        return Replica(master_roles, index_errors=errors, on_false_header=on_false_header)
    return ObservedReplica(master_roles, observers, index_errors=errors, on_false_header=on_false_header)


def create_answers_publishers(
    configuration: Configuration, log: EventLog, leads: Callable[[], bool]
) -> list[AnswersPublisher]:
    """Returns a publisher of the answers to clients for each topic of answers; they publish while `leads` returns
    True."""
    admin, store = create_admin_client(configuration), SnapshotStore.from_configuration(configuration)
    tenants = configuration.get(TENANTS)

    def read_leadership(at_most: int | None) -> tuple[LeadershipState, int]:
        return read_newest_leadership(log, store, at_most=None if at_most is None else at_most - 1)

    def find_log_id() -> str:
        described = describe_topics(admin, [log.topic])[log.topic]
        return "" if described is None else described.topic_id or ""

    return [
        AnswersPublisher(
            configuration.kafka,
            topic,
            codec_of(configuration, topic),
            log,
            tenant=tenant,
            leads=leads,
            read_leadership=read_leadership,
            find_log_id=find_log_id,
        )
        for tenant, topic in answers_topics(configuration.cluster_id, tenants).items()
    ]


def _find_led_dispatcher(host: Host) -> DispatcherState | None:
    """Returns the Dispatcher's state if this process leads it and has read the log to its end."""
    state = host.state(DISPATCHER)
    if not isinstance(state, DispatcherState) or host.position < 0 or not host.leads(DISPATCHER):
        return None
    return state


def _find_end(replica: Replica) -> ClusterEnd | None:
    """Returns how the cluster has terminated; None if it has not."""
    state = replica.states.get(RESOURCE_MANAGER)
    if not isinstance(state, ResourceManagerState) or state.ending is None:
        return None
    if state.ending.terminated_at is None:
        return None
    return ClusterEnd(
        state.ending.reason, state.ending.terminated_at, _find_job_status(replica), state.application
    )


def _find_job_status(replica: Replica) -> JobStatus | None:
    """Returns the last status of the job that the cluster ran for. A job that was rejected has failed."""
    state = replica.states.get(DISPATCHER)
    if not isinstance(state, DispatcherState) or state.options.application_job_id is None:
        return None
    job = state.jobs.get(state.options.application_job_id)
    return JobStatus.FAILED if job is None else job.status


def _leave_ended(replica: Replica, drivers: WorkerDrivers, stop: threading.Event) -> bool:
    """Leaves the platform for an earlier process that ended after the cluster and before it left; returns whether that
    was needed."""
    end = _find_end(replica)
    if end is None or not drivers.owns(end):
        return False
    _log.info("the cluster has ended: leaves the platform", application=end.application, reason=end.reason)
    while not drivers.leave(end) and not stop.wait(_LEAVE_PAUSE_S):
        pass
    return True


def _has_ended(replica: Replica, drivers: WorkerDrivers) -> bool:
    """Returns whether the cluster has terminated, all its jobs are cleaned up, and it has left its platform."""
    end = _find_end(replica)
    if end is None or any(needs_cleanup(state) for state in replica.states.values()):
        return False
    return drivers.leave(end)
