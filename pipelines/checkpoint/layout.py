"""The directories of checkpoints: one for each job, as in Flink, and one for each savepoint.

    <state.checkpoints.dir>/<job id>/chk-N        what only checkpoint N holds, and its _metadata
    <state.checkpoints.dir>/<job id>/shared       state that several checkpoints refer to
    <state.savepoints.dir>/savepoint-...          a savepoint with all that it holds

Files are named relative to the job's directory, or the savepoint's, so that either can be moved as a whole.
"""

from __future__ import annotations

import posixpath
import re
from typing import Final

METADATA: Final = "_metadata"
SHARED: Final = "shared"

_CHECKPOINT: Final = re.compile(r"chk-([1-9][0-9]*)")


def job_directory(checkpoints: str, job_id: str) -> str:
    """Returns a job's directory in the configured one (a path or URI)."""
    return posixpath.join(checkpoints, job_id)


def checkpoint_directory(job: str, checkpoint_id: int) -> str:
    """Returns chk-N in a job's directory."""
    return posixpath.join(job, f"chk-{checkpoint_id}")


def shared_directory(job: str) -> str:
    """Returns the directory of state that several checkpoints refer to."""
    return posixpath.join(job, SHARED)


def savepoint_directory(savepoints: str, job_id: str, own: str) -> str:
    """Returns the directory of a savepoint below the configured or requested one; `own` distinguishes savepoints of
    a job."""
    return posixpath.join(savepoints, f"savepoint-{job_id[:6]}-{own}")


def checkpoint_id_of(directory: str) -> int | None:
    """Returns N of .../chk-N; None for a savepoint's directory."""
    found = _CHECKPOINT.fullmatch(posixpath.basename(directory.rstrip("/")))
    return int(found[1]) if found else None


def job_directory_of(directory: str) -> str | None:
    """Returns the job's directory of .../chk-N; None for a savepoint's."""
    directory = directory.rstrip("/")
    return None if checkpoint_id_of(directory) is None else posixpath.dirname(directory)


def base_of(directory: str) -> str:
    """Returns the directory that a checkpoint's file names are relative to: the job's for .../chk-N, else the
    savepoint's."""
    return job_directory_of(directory) or directory.rstrip("/")


def metadata_path(directory: str) -> str:
    """The `_metadata` file of a checkpoint's or savepoint's directory."""
    return posixpath.join(directory, METADATA)
