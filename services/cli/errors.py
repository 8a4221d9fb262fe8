"""How commands end: stable exit codes (docs/cli.md), and errors in one line that says what to do."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a script can rely on."""

    OK = 0
    JOB = 1
    """A job was rejected, failed, or was cancelled; or the program that describes it is wrong."""
    USAGE = 2
    UNREACHABLE = 3
    """There is no cluster, or it, or its Kafka, does not answer."""
    NOT_FOUND = 4
    """There is no such job or offset."""
    PROCESS = 5
    """A process of the cluster did not start, or did not end in order."""
    DEPOSED = 6
    """Another jobmanager, or a TaskExecutor of the same resource id, has taken over from this one."""
    WRONG = 7
    """`demo`: what was counted is not what was sent."""
    SAVEPOINT = 8
    """A checkpoint or savepoint was not completed, not deleted, or is not whole."""
    ASTRAY = 9
    """The states of this jobmanager are not those of the one that leads: it stopped."""
    INTERNAL = 70
    """A mistake of tailrace itself."""
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class Failure(Exception):
    """An expected error: `str()` of it is the line on stderr; `details` are lines below it, such as a log's end."""

    def __init__(self, code: ExitCode, message: str, details: str = "") -> None:
        self.code = code
        self.details = details
        super().__init__(message)


def explained(error: BaseException) -> Failure | None:
    """The Failure that an exception of the packages below means; None for what nobody expects."""
    from ...infra.jars import JarsUnavailable
    from ...infra.kafka import KafkaUnavailable
    from ...infra.prerequisites import MissingPrerequisite
    from ...infra.zookeeper import ZooKeeperUnavailable
    from ...pipelines.graph.errors import ProgramError
    from ..candidacy import LedByElection, MandateFromAnotherTime
    from ..client import CheckpointFailedError, JobRejectedError, NoAnswer, SavepointKeptError
    from ..configuration import ConfigurationError
    from ..host import Deposed
    from ..log import LogTruncated, LogUnavailable
    from ..snapshots.audit import ReplicaDiverged

    match error:
        case Failure():
            return error
        case LogUnavailable() | LogTruncated() | NoAnswer():
            return Failure(ExitCode.UNREACHABLE, str(error))
        case KafkaUnavailable() | ZooKeeperUnavailable() | JarsUnavailable() | MissingPrerequisite():
            first, _, rest = str(error).partition("\n")
            return Failure(ExitCode.PROCESS, first, rest)
        case LedByElection() | MandateFromAnotherTime():
            return Failure(ExitCode.USAGE, str(error))
        case ConfigurationError():
            return Failure(ExitCode.USAGE, f"{error}; `tailrace config` lists all options")
        case JobRejectedError(job_id=job_id, reason=reason):
            return Failure(ExitCode.JOB, f"job {job_id} was rejected: {reason}")
        case CheckpointFailedError() | SavepointKeptError():
            return Failure(ExitCode.SAVEPOINT, str(error))
        case ProgramError():
            return Failure(ExitCode.JOB, str(error))
        case ReplicaDiverged():
            return Failure(ExitCode.ASTRAY, str(error))
        case Deposed():
            return Failure(ExitCode.DEPOSED, str(error))
        case _:
            return None
