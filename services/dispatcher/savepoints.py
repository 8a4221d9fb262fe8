"""Deletes savepoints: only a directory that is a savepoint, as its `_metadata` proves, and only the savepoint's own
files.

`_metadata` is deleted last: if the process dies before that, the directory is still a savepoint and can be deleted
again.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from ...infra.sanitize import escape_control_characters
from ...infra.storage.errors import CheckpointError
from ...infra.storage.storage import Storage
from ...pipelines.checkpoint import disposal
from ...pipelines.checkpoint.metadata import directory_of, read_metadata
from ...schemas.types import SnapshotType

_NAMED = 10


class DisposalResult(msgspec.Struct, frozen=True):
    """The result of a disposal: None, or one line with the reason why the savepoint still exists."""

    failure: str | None = None
    left: tuple[str, ...] = ()
    """The first few other files in its directory, because of which the directory remains."""


class SavepointDisposer(Protocol):
    """The signature of `dispose_savepoint`."""

    def __call__(self, path: str, *, may_be_gone: bool = False, tenant: str = "") -> DisposalResult: ...


def dispose_savepoint(path: str, *, may_be_gone: bool = False, tenant: str = "") -> DisposalResult:
    """Deletes the savepoint of a directory. `may_be_gone`: an earlier leader may have deleted it for the same request,
    so a missing directory is no error. `tenant`: deletes only a savepoint of its jobs; empty: of any job."""
    try:
        if may_be_gone and not Storage.open(directory_of(path)).exists(""):
            return DisposalResult()
        metadata = read_metadata(path)
        directory = metadata.checkpoint.uri
        if tenant and metadata.tenant != tenant:
            why = f"{directory} is no savepoint of tenant {tenant}: ask the operator to delete it"
            return DisposalResult(why)
        if metadata.checkpoint.snapshot_type is not SnapshotType.SAVEPOINT:
            return DisposalResult(
                f"{directory} is a checkpoint of job {metadata.job_id}, not a savepoint: others may share its files; "
                "retained checkpoints of an ended job are deleted with the job's directory"
            )
        left = disposal.dispose(metadata)[:_NAMED]
        return DisposalResult(left=tuple(escape_control_characters(name) for name in left))
    except CheckpointError as error:
        return DisposalResult(str(error))
