"""A job as a file: what its SubmitJob will say, for a cluster that starts with it (application mode)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ...schemas.types import EntryPoint


class JobFile(msgspec.Struct, frozen=True):
    """The job of an application cluster, with its program."""

    job_id: str
    entry_point: EntryPoint
    parallelism: int | None = None
    savepoint_path: str | None = None
    allow_non_restored_state: bool = False


def write_job_file(path: Path, job: JobFile) -> None:
    """Writes a job as JSON; files that it ships are in Base64."""
    path.write_bytes(msgspec.json.encode(job))


def read_job_file(path: Path) -> JobFile:
    """Reads a job. Raises OSError, msgspec.MsgspecError."""
    return msgspec.json.decode(path.read_bytes(), type=JobFile)
