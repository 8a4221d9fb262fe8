"""Deletes checkpoints: the files that only one checkpoint uses are deleted, files that another one refers to stay.

Files that several checkpoints may refer to are in the job's shared directory. Such a file is deleted only if every
remaining checkpoint is known not to refer to it: if the metadata of one cannot be read, all shared files stay. The
deletion of a checkpoint also deletes the files that no checkpoint will ever refer to (orphaned_state_files.py). A
savepoint may be in a directory with other files of the user; only its own files are deleted. Deletion is idempotent, so
an interrupted deletion is repeated.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator

from ...infra.storage.errors import CorruptFile, NoCheckpoint
from ...infra.storage.storage import Storage, canonical
from .layout import METADATA, SHARED, base_of, checkpoint_id_of, metadata_path
from .metadata import CheckpointMetadata, files_of, read_metadata
from .orphaned_state_files import orphaned_files

Read = Callable[[str], CheckpointMetadata]
"""`read_metadata`, or a cached version of it."""


def discard(uri: str, retained: Iterable[str] = (), *, read: Read = read_metadata) -> None:
    """Deletes a checkpoint's directory, and the shared files that only it refers to. Raises StorageError.

    `retained`: the directories of checkpoints that may share files with it and stay. Other checkpoints in storage keep
    their files too, until they are discarded.
    """
    delete(uri, exclusive_files(uri, retained, read=read))


def exclusive_files(uri: str, retained: Iterable[str] = (), *, read: Read = read_metadata) -> set[str]:
    """Returns the shared files that only this checkpoint refers to now and later; empty if that is unknown.

    They are relative to the job's directory. Raises StorageError.
    """
    uri = canonical(uri)
    if checkpoint_id_of(uri) is None:
        return set()
    storage = Storage.open(base_of(uri))
    own = _shared_by(uri, storage, read)
    wanted = _retained_files(retained, storage, read)
    if wanted is None:
        return set()
    named = [posixpath.basename(path) for path in wanted]
    own |= {posixpath.join(SHARED, name) for name in orphaned_files(storage.sizes(SHARED), named)}
    if not own:
        return own
    for name in storage.directories():
        other = storage.absolute(name)
        if other != uri and checkpoint_id_of(other) is not None:
            wanted |= _shared_by(other, storage, read)
    return own - wanted


def delete(uri: str, files: Iterable[str], before_each: Callable[[], None] = lambda: None) -> None:
    """Deletes a checkpoint's directory and the files that it shares with no other. Calls `before_each` before each
    file; an error that it raises ends the deletion. Raises StorageError."""
    storage = Storage.open(base_of(canonical(uri)))
    for path in sorted(files):
        before_each()
        storage.delete(path)
    before_each()
    # The metadata is deleted last: as long as it exists, the remaining files can be found.
    storage.delete_tree(canonical(uri))


def discard_incomplete(uri: str) -> None:
    """Deletes the directory of a checkpoint that was not completed; does nothing if it is gone. Raises StorageError.

    Files that its tasks have written to the shared directory stay: later checkpoints refer to them.
    """
    Storage.open(uri).delete_tree("")


def remove_all(job_directory: str, retained: Iterable[str] = (), *, read: Read = read_metadata) -> None:
    """Deletes all files of a job's checkpoints, except retained checkpoints and the files that they refer to.

    Raises StorageError.
    """
    storage = Storage.open(job_directory)
    staying = {canonical(directory) for directory in retained}
    staying = {directory for directory in staying if storage.exists(metadata_path(directory))}
    if not any(posixpath.dirname(directory) == storage.uri for directory in staying):
        storage.delete_tree("")
        return
    for name in storage.directories():
        if storage.absolute(name) not in staying and name != SHARED:
            storage.delete_tree(name)
    wanted = _retained_files(staying, storage, read)
    if wanted is not None:
        for path in {posixpath.join(SHARED, name) for name in storage.sizes(SHARED)} - wanted:
            storage.delete(path)


def dispose(savepoint: CheckpointMetadata) -> list[str]:
    """Deletes the files that a savepoint names in its directory, then its `_metadata`, then the directory if it is
    empty. Raises StorageError.

    Returns the names of the files that remain, and of directories with a trailing slash.
    """
    storage = Storage.open(savepoint.checkpoint.uri)
    own = sorted(path for path in _paths(savepoint, storage) if storage.absolute(path) != path)
    for path in own:
        storage.delete(path)
    # As long as its metadata exists, the remaining files can be found.
    storage.delete(METADATA)
    for directory in sorted({parent for path in own for parent in _parents(path)}, key=len, reverse=True):
        storage.delete_if_empty(directory)
    storage.delete_if_empty("")
    return [*sorted(storage.sizes()), *(f"{name}/" for name in storage.directories())]


def _parents(path: str) -> Iterator[str]:
    """Yields the directories of a relative path, without its base."""
    while path := posixpath.dirname(path):
        yield path


def _retained_files(retained: Iterable[str], storage: Storage, read: Read) -> set[str] | None:
    """Returns the files that these checkpoints refer to, relative to the job's directory; None if that is unknown."""
    found: set[str] = set()
    for uri in retained:
        try:
            found |= _paths(read(uri), storage)
        except (NoCheckpoint, CorruptFile):
            # A checkpoint without metadata is being written, or incomplete.
            return None
    return found


def _shared_by(uri: str, storage: Storage, read: Read) -> set[str]:
    try:
        return {path for path in _paths(read(uri), storage) if path.startswith(f"{SHARED}/")}
    except (NoCheckpoint, CorruptFile):
        return set()


def _paths(metadata: CheckpointMetadata, storage: Storage) -> set[str]:
    """Returns the paths of its files, relative to the job's directory."""
    own = Storage.open(base_of(metadata.checkpoint.uri))
    return {storage.relative(canonical(own.absolute(file.path))) for file in files_of(metadata)}
