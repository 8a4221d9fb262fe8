"""Deletes savepoints: a directory goes only if it is one, as its `_metadata` says.

`_metadata` goes last: whoever dies on the way leaves a directory that still is a savepoint, and can be deleted again.
"""

from __future__ import annotations

from ...pipelines.checkpoint.errors import CheckpointError
from ...pipelines.checkpoint.layout import METADATA
from ...pipelines.checkpoint.metadata import read_metadata
from ...pipelines.checkpoint.storage import Storage
from ...schemas.types import SnapshotType


def dispose(path: str) -> str | None:
    """Deletes the savepoint of a directory. Why not, in a line; None: it is gone."""
    try:
        metadata = read_metadata(path)
        directory = metadata.checkpoint.uri
        if metadata.checkpoint.snapshot_type is not SnapshotType.SAVEPOINT:
            return (
                f"{directory} is a checkpoint of job {metadata.job_id}, no savepoint: others may share its files; "
                "what is kept of a job that has ended goes with the job's directory"
            )
        storage = Storage.open(directory)
        for name in storage.directories():
            storage.delete_tree(name)
        for name in storage.sizes():
            if name != METADATA:
                storage.delete(name)
        storage.delete_tree("")
    except CheckpointError as error:
        return str(error)
    return None
