"""Runs all checks of `cluster verify`."""

from __future__ import annotations

from ....infra.storage.errors import CheckpointError
from ...configuration import Configuration
from ...history import HistoryProjection
from ...history.archive.errors import ArchiveError
from ...history.job_history_store import JobHistoryStore
from ...history.retention.archived_log import ArchivedLog, open_archived_log
from ...log import LogTruncated
from ...log.newer_release import NewerRelease
from ...snapshots.store import SnapshotStore
from ..render.progress import ProgressLine
from .job_checks import check_blobs, check_checkpoints
from .log_checks import check_archive, check_cluster_topics, check_snapshots, check_submissions
from .report import LOST_WITHOUT, Findings, ResourceKind, Verification

_TIMEOUT_S = 10.0


def verify_cluster(configuration: Configuration, *, quick: bool) -> Verification:
    """Checks the topics and the storage of a cluster. Raises LogUnavailable if Kafka does not answer."""
    found = Findings()
    with ProgressLine(f"verifies cluster {configuration.cluster_id}", unit="resources") as progress:

        def on_progress() -> None:
            progress(found.total)

        if check_cluster_topics(configuration, found):
            log = open_archived_log(configuration, timeout_s=_TIMEOUT_S)
            try:
                check_snapshots(log, configuration, found)
                check_archive(log, found, on_progress, quick=quick)
                fold = _fold(log, configuration, found)
                if fold is not None:
                    check_submissions(configuration, fold, found)
                    check_blobs(configuration, fold, found, on_progress, quick=quick)
                    check_checkpoints(fold, found, on_progress, quick=quick)
            finally:
                log.close()
    return Verification(
        cluster_id=configuration.cluster_id,
        complete=not quick,
        checked=found.checked,
        lost_without=LOST_WITHOUT,
        faults=found.faults,
        notes=found.notes,
    )


def _fold(log: ArchivedLog, configuration: Configuration, found: Findings) -> HistoryProjection | None:
    """Returns the state of the log; None if it cannot be read, which is a fault."""
    found.check(ResourceKind.LOG)
    fold = HistoryProjection()
    try:
        store = SnapshotStore.from_configuration(configuration)
        for _ in fold.read(log, store=store, histories=JobHistoryStore.from_configuration(configuration)):
            pass
    except (LogTruncated, ArchiveError, CheckpointError, NewerRelease) as error:
        found.add(ResourceKind.LOG, log.topic, str(error), LOST_WITHOUT[ResourceKind.LOG])
        return None
    return fold
