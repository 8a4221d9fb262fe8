"""The stable exit codes (docs/cli.md), and the mapping from expected exceptions to one-line errors."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, unique
from typing import Any


@unique
class ExitCode(IntEnum):
    """The exit codes of all commands. They do not change between releases."""

    OK = 0
    JOB = 1
    """A job was rejected, failed, was cancelled or suspended; or the program has an error."""
    USAGE = 2
    UNREACHABLE = 3
    """There is no cluster, or the cluster or its Kafka does not answer."""
    NOT_FOUND = 4
    """The job, offset or savepoint does not exist."""
    PROCESS_FAILED = 5
    """A process of the cluster did not start, did not stop cleanly, or has lost a process that it needs."""
    DEPOSED = 6
    """Another jobmanager, or a TaskExecutor with the same resource id, replaced this process."""
    DEMO_MISMATCH = 7
    """`demo`: the counted words differ from the sent words."""
    SAVEPOINT = 8
    """A checkpoint or savepoint was not completed, was not deleted, or is incomplete."""
    REPLICA_DIVERGED = 9
    """The state hash of this jobmanager differs from that of most masters, so it stopped."""
    ARCHIVE = 10
    """A file of exported events is missing, damaged, or unusable for this command."""
    DIFFERS = 11
    """`replay --check`: this release decides differently from the log."""
    UNSOUND = 12
    """`cluster verify`: something that the cluster stores is missing or damaged. `cluster doctor`: something that the
    role needs is missing."""
    ROLLED_BACK = 13
    """`upgrade`: the new program was not stable, and the old one runs again."""
    INTERNAL = 70
    """A bug in tailrace."""
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143
    """`run` received SIGTERM. The jobs that it waited for continue."""


class CommandFailure(Exception):
    """An expected error. `str(error)` is the line on stderr; `details` follow it, such as the last lines of a log."""

    def __init__(self, code: ExitCode, message: str, details: str = "") -> None:
        self.code = code
        self.details = details
        super().__init__(message)


CODES: Mapping[str, ExitCode] = {
    "infra.jars:JarsUnavailable": ExitCode.PROCESS_FAILED,
    "infra.kafka:KafkaUnavailable": ExitCode.PROCESS_FAILED,
    "infra.kafka_check:KafkaRefusal": ExitCode.UNREACHABLE,
    "infra.kafka_check:KafkaUnreachable": ExitCode.UNREACHABLE,
    "infra.kafka_connection:UnusableProperties": ExitCode.USAGE,
    "infra.prerequisites:MissingPrerequisite": ExitCode.PROCESS_FAILED,
    "infra.threads:ThreadFailed": ExitCode.INTERNAL,
    "infra.tls:UnusableTlsFile": ExitCode.USAGE,
    "infra.zookeeper:ZooKeeperUnavailable": ExitCode.PROCESS_FAILED,
    "pipelines.graph.errors:ProgramError": ExitCode.JOB,
    "pipelines.runtime.common.failures:RuntimeProcessDied": ExitCode.PROCESS_FAILED,
    "services.host.grant_check:EpochOutOfReach": ExitCode.USAGE,
    "services.host.grant_check:ElectedLeaderExists": ExitCode.USAGE,
    "services.host.grant_check:StaleElectionEpoch": ExitCode.USAGE,
    "services.client.checkpoint_requests:CheckpointFailedError": ExitCode.SAVEPOINT,
    "services.client.checkpoint_requests:SavepointNotDisposedError": ExitCode.SAVEPOINT,
    "services.client.offset_reset:OffsetOutOfRange": ExitCode.USAGE,
    "services.client.offset_reset:UnknownPartition": ExitCode.NOT_FOUND,
    "services.client.subscription:JobRejectedError": ExitCode.JOB,
    "services.client.subscription:NoAnswerError": ExitCode.UNREACHABLE,
    "services.configuration.errors:ConfigurationError": ExitCode.USAGE,
    "services.core.index_validation:IndexDiverged": ExitCode.INTERNAL,
    "services.core.feature_level:UnknownFeatureLevel": ExitCode.USAGE,
    "services.history.archive.errors:ArchiveError": ExitCode.ARCHIVE,
    "services.history.log_position:InvalidPosition": ExitCode.USAGE,
    "services.history.log_position:PositionOutOfRange": ExitCode.NOT_FOUND,
    "services.history.sql.errors:SparkUnavailable": ExitCode.PROCESS_FAILED,
    "services.history.sql.errors:SqlError": ExitCode.USAGE,
    "services.host.host_core:Deposed": ExitCode.DEPOSED,
    "services.log.event_log:LogTruncated": ExitCode.UNREACHABLE,
    "services.log.event_log:LogUnavailable": ExitCode.UNREACHABLE,
    "services.log.rest_log:RequestRefused": ExitCode.USAGE,
    "services.log.topic_validation:UnfitTopic": ExitCode.UNREACHABLE,
    "services.log.newer_release:NewerRelease": ExitCode.USAGE,
    "services.simulation.fork:CorruptMembersFile": ExitCode.USAGE,
    "services.traces.otlp:OtlpPackageMissing": ExitCode.USAGE,
    "services.traces.otlp_exporters:OtlpUnavailable": ExitCode.UNREACHABLE,
    "services.yarn.errors:YarnError": ExitCode.PROCESS_FAILED,
    "services.snapshots.log_identity:LogReplaced": ExitCode.UNREACHABLE,
    "services.snapshots.state_hash_auditor:ReplicaDiverged": ExitCode.REPLICA_DIVERGED,
}
"""Expected exceptions as module:class below the package -> exit code. Names instead of classes avoid slow imports."""

_PACKAGE = __name__.partition(".")[0]


def to_failure(error: BaseException) -> CommandFailure | None:
    """The CommandFailure for an exception whose class, or a base class, is in `CODES`; None for all others."""
    if isinstance(error, CommandFailure):
        return error
    for kind in type(error).__mro__:
        package, _, module = kind.__module__.partition(".")
        name = f"{module}:{kind.__qualname__}"
        if package == _PACKAGE and name in CODES:
            return _failure_from_error(name, CODES[name], error)
    return None


def _failure_from_error(name: str, code: ExitCode, error: Any) -> CommandFailure:
    match name.partition(":")[2]:
        case "KafkaUnavailable" | "ZooKeeperUnavailable" | "JarsUnavailable" | "MissingPrerequisite":
            first, _, rest = str(error).partition("\n")
            return CommandFailure(code, first, rest)
        case "ConfigurationError":
            return CommandFailure(code, f"{error}; `tailrace config` lists all options")
        case "RequestRefused":
            by_status = {404: ExitCode.NOT_FOUND, 409: ExitCode.JOB}
            hint = " Check the token in --rest-token-file." if error.status == 401 else ""
            return CommandFailure(
                by_status.get(error.status, code), f"the REST server refuses: {error}{hint}"
            )
        case "JobRejectedError":
            return CommandFailure(code, f"job {error.job_id} was rejected: {error.reason}")
        case _:
            return CommandFailure(code, str(error))
