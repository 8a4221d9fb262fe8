"""Checks the topics, the log, its snapshots with their histories, and its archive."""

from __future__ import annotations

from collections.abc import Callable

from ....infra.storage.errors import CheckpointError
from ...configuration import Configuration
from ...configuration.options.tenants import TENANTS
from ...core.role import DISPATCHER
from ...dispatcher.state import DispatcherState
from ...dispatcher.submissions_topic import AdmittedPositions
from ...history import HistoryProjection
from ...history.archive.errors import ArchiveError
from ...history.job_history_store import JobHistoryStore
from ...history.log_position import first_offset
from ...history.retention.archived_log import ArchivedLog, find_archive
from ...history.retention.archiver import check_continued
from ...history.retention.errors import UnusableSegment
from ...history.retention.log_archive import LogArchive
from ...history.retention.segment import SegmentRange, find_covering
from ...log import LogTruncated
from ...log.clients import consumer_configuration, watermarks
from ...log.factory import create_admin_client
from ...log.topic_validation import find_faults
from ...log.topics import (
    answers_topics,
    dead_letters_topic,
    describe_topics,
    heartbeats_topic,
    log_topic,
    submissions_topic,
    submissions_topics,
)
from ...snapshots.log_id import read_log_id
from ...snapshots.recovery import check_same_log
from ...snapshots.snapshot_file import UnusableSnapshot
from ...snapshots.store import SnapshotStore
from .report import LOST_WITHOUT, Findings, ResourceKind

_TIMEOUT_S = 10.0
MISSING = "it does not exist"
"""The problem of a missing topic."""
OnProgress = Callable[[], None]


def check_cluster_topics(configuration: Configuration, found: Findings) -> bool:
    """Checks that the topics exist and keep their records; returns whether the log exists. Raises LogUnavailable."""
    admin, cluster = create_admin_client(configuration), configuration.cluster_id
    log, tenants = log_topic(cluster), configuration.get(TENANTS)
    lost_requests = "requests that were not admitted yet; `tailrace cluster start` creates the topic"
    lost_answers = "answers to clients; the log has them, `tailrace cluster start` creates the topic"
    lost = {
        log: LOST_WITHOUT[ResourceKind.LOG],
        **dict.fromkeys(submissions_topics(cluster, tenants).values(), lost_requests),
        **dict.fromkeys(answers_topics(cluster, tenants).values(), lost_answers),
        heartbeats_topic(cluster): "nothing; `tailrace cluster start` creates the topic",
        dead_letters_topic(cluster): "the rejected records; `tailrace cluster start` creates the topic",
    }
    described = describe_topics(admin, lost)
    for topic in lost:
        found.check(ResourceKind.TOPIC)
        if described[topic] is None:
            found.add(ResourceKind.TOPIC, topic, MISSING, lost[topic])
    if described[log] is None:
        return False
    for fault in find_faults(admin, cluster, tenants):
        found.add(ResourceKind.TOPIC, fault.topic, str(fault), lost[fault.topic])
    return True


def check_submissions(configuration: Configuration, fold: HistoryProjection, found: Findings) -> None:
    """Compares the topics of submissions with the positions in the log."""
    state = fold.replica.states.get(DISPATCHER)
    if isinstance(state, DispatcherState):
        for tenant, admitted in sorted(state.admitted.items()):
            _check_admitted(
                configuration, submissions_topic(configuration.cluster_id, tenant), admitted, found
            )


def _check_admitted(
    configuration: Configuration, topic: str, admitted: AdmittedPositions, found: Findings
) -> None:
    described = describe_topics(create_admin_client(configuration), [topic])[topic]
    if described is None or admitted.topic_id is None:
        return
    if described.topic_id != admitted.topic_id:
        found.add(
            ResourceKind.TOPIC,
            topic,
            "it was created again since the last admission, or is of another Kafka",
            "requests that were not admitted before; it is read from its start",
        )
        return
    from confluent_kafka import Consumer

    consumer = Consumer(consumer_configuration(configuration.kafka))
    try:
        for number in range(described.partitions):
            first, end = watermarks(consumer, topic, _TIMEOUT_S, number)
            position = admitted.positions.get(number, 0)
            if first > position:
                problem = f"partition {number} begins at offset {first}, and only those below {position} were admitted"
                found.add(ResourceKind.TOPIC, topic, problem, f"the {first - position} requests between")
            elif position > end:
                problem = (
                    f"partition {number} ends before offset {end}, and those below {position} were admitted"
                )
                found.add(ResourceKind.TOPIC, topic, problem, "nothing: the lost requests were admitted")
    finally:
        consumer.close()


def check_snapshots(log: ArchivedLog, configuration: Configuration, found: Findings) -> None:
    """Checks each snapshot, whether it is of this log, and the history beside it."""
    store = SnapshotStore.from_configuration(configuration)
    histories = JobHistoryStore.from_configuration(configuration)
    lost = LOST_WITHOUT[ResourceKind.SNAPSHOT]
    usable = 0
    try:
        offsets, log_id = store.offsets(), read_log_id(log.live)
        for offset in offsets:
            found.check(ResourceKind.SNAPSHOT)
            uri = store.uri_of(offset)
            try:
                header = store.header(offset)
                if log_id and header.log_id and header.log_id != log_id:
                    raise UnusableSnapshot(f"it is of log {header.log_id}, and {log.topic} is {log_id}")
                check_same_log(header, log)
                store.read(offset)
            except (UnusableSnapshot, CheckpointError, LogTruncated) as error:
                found.add(ResourceKind.SNAPSHOT, uri, str(error), lost)
                continue
            usable += 1
            if offset in histories.offsets() and histories.read(offset, header.event_id) is None:
                found.add(
                    ResourceKind.SNAPSHOT,
                    f"the history of {uri}",
                    "it is damaged, or of another release",
                    "nothing: commands take longer",
                )
    except CheckpointError as error:
        found.note(f"snapshots were not checked: {error}")
        return
    if not usable and first_offset(log.live) > 0:
        found.add(
            ResourceKind.SNAPSHOT,
            store.uri,
            "no snapshot can be used, and the topic of the log has no beginning",
            "starts read the whole archive; with a damaged archive, all jobs",
        )


def check_archive(log: ArchivedLog, found: Findings, on_progress: OnProgress, *, quick: bool) -> None:
    """Checks each segment, and that archive and topic have no gap between them."""
    first, lost = first_offset(log.live), LOST_WITHOUT[ResourceKind.ARCHIVE]
    ids: list[str] = []
    try:
        ids = log.archive.log_ids()
        log_id = read_log_id(log.live) if first == 0 else None
        archive = (
            find_archive(log.live, log.archive, first)
            if first > 0
            else log.archive.of_log(log_id)
            if log_id is not None
            else None
        )
    except UnusableSegment as error:
        # It is the segment that is compared with the topic.
        if len(ids) > 1:
            found.add(ResourceKind.ARCHIVE, log.archive.uri, str(error).partition(";")[0], lost)
            return
        archive = log.archive.of_log(ids[0])
    except ArchiveError as error:
        found.add(ResourceKind.ARCHIVE, log.archive.uri, str(error).partition(";")[0], lost)
        return
    own = None if archive is None else archive.log_id
    found.notes += [
        f"{log.archive.of_log(other).uri} is the archive of a log before this one"
        for other in ids
        if other != own
    ]
    if archive is None:
        if first > 0:
            found.add(
                ResourceKind.ARCHIVE,
                log.archive.uri,
                f"offsets 0 to {first - 1} of {log.topic} were deleted, and there is no archive",
                "the history of these offsets",
            )
        return
    try:
        _check_segments(log, archive, first, found, on_progress, quick=quick)
    except ArchiveError as error:
        found.note(f"the archive was not checked further: {error}")


def _check_segments(
    log: ArchivedLog,
    archive: LogArchive,
    first: int,
    found: Findings,
    on_progress: OnProgress,
    *,
    quick: bool,
) -> None:
    ranges = archive.ranges()
    is_sound = True
    for wanted in ranges:
        found.check(ResourceKind.ARCHIVE)
        on_progress()
        try:
            archive.verify(archive.manifest(wanted), quick=quick, entries=not quick)
        except UnusableSegment as error:
            is_sound = False
            needed = (
                "the history of these offsets"
                if wanted.first < first
                else "nothing: the topic still has these offsets"
            )
            uri, _, problem = str(error).partition(" with ")
            found.add(ResourceKind.ARCHIVE, uri, problem.partition(";")[0], needed)
    position = ranges[0].first if ranges else first
    if ranges and position > 0:
        found.note(f"the history begins at offset {position}")
    while position < first:
        covering = find_covering(ranges, position)
        if covering is not None:
            position = covering.last + 1
            continue
        after = min((entry.first for entry in ranges if entry.first > position), default=first)
        missing = SegmentRange(position, min(after, first) - 1)
        found.add(
            ResourceKind.ARCHIVE,
            archive.uri_of(missing.manifest_name),
            f"offsets {missing.first} to {missing.last} of the log are missing",
            "the history of these offsets",
        )
        position = missing.last + 1
    archived = archive.end()
    if is_sound and archived is not None and archived > first:
        try:
            check_continued(log.live, archive, first, archived)
        except ArchiveError as error:
            found.add(
                ResourceKind.LOG, log.topic, str(error).partition(";")[0], LOST_WITHOUT[ResourceKind.LOG]
            )
