"""Deleting checkpoints: what one holds alone goes, what another refers to stays.

Files that several checkpoints may refer to lie in the job's shared directory. One of them is deleted only if it is
known of every checkpoint that stays that it does not refer to it: where the metadata of one can't be read, all shared
files stay. With a checkpoint go files that none refers to, and none ever will (orphaned_state_files.py). A savepoint
may lie where people have put other things, and takes only its own files with it. Deleting twice does no more than
deleting once, so that whoever was interrupted begins again.
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
"""`read_metadata`, or something that remembers what it gave."""


def discard(uri: str, retained: Iterable[str] = (), *, read: Read = read_metadata) -> None:
    """Deletes a checkpoint's directory, and the shared files that only it refers to. Raises StorageError.

    `retained`: the directories of checkpoints that may share files with it and stay; others that are in storage keep
    theirs too, until they are discarded.
    """
    delete(uri, exclusive_files(uri, retained, read=read))


def exclusive_files(uri: str, retained: Iterable[str] = (), *, read: Read = read_metadata) -> set[str]:
    """The shared files that only this checkpoint refers to, or none, now and later; as far as that is known.

    They are relative to the job's directory. Raises StorageError.
    """
    uri = canonical(uri)
    if checkpoint_id_of(uri) is None:
        return set()
    storage = Storage.open(base_of(uri))
    own = _shared_by(uri, storage, read)
    wanted = _kept(retained, storage, read)
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
    """Deletes a checkpoint's directory and files that it shares with no other. Raises StorageError, and what
    `before_each` raises, which may end it at any file."""
    storage = Storage.open(base_of(canonical(uri)))
    for path in sorted(files):
        before_each()
        storage.delete(path)
    before_each()
    # Its metadata goes last: as long as it is there, what is left can be found.
    storage.delete_tree(canonical(uri))


def discard_incomplete(uri: str) -> None:
    """Deletes the directory of a checkpoint that was not completed; again does no more. Raises StorageError.

    What its tasks have put into the shared directory stays: they go on from there.
    """
    Storage.open(uri).delete_tree("")


def remove_all(job_directory: str, retained: Iterable[str] = (), *, read: Read = read_metadata) -> None:
    """Deletes all that a job's checkpoints have left, but for those that are retained and what they refer to.

    Raises StorageError.
    """
    storage = Storage.open(job_directory)
    staying = {canonical(each) for each in retained}
    staying = {each for each in staying if storage.exists(metadata_path(each))}
    if not any(posixpath.dirname(each) == storage.uri for each in staying):
        storage.delete_tree("")
        return
    for name in storage.directories():
        if storage.absolute(name) not in staying and name != SHARED:
            storage.delete_tree(name)
    wanted = _kept(staying, storage, read)
    if wanted is not None:
        for path in {posixpath.join(SHARED, name) for name in storage.sizes(SHARED)} - wanted:
            storage.delete(path)


def dispose(savepoint: CheckpointMetadata) -> list[str]:
    """Deletes the files that a savepoint names and that lie in its directory, then its `_metadata`, and then the
    directory, if nothing else is in it. Raises StorageError.

    What else there is: names of files, and of directories with a slash behind.
    """
    storage = Storage.open(savepoint.checkpoint.uri)
    own = sorted(path for path in _paths(savepoint, storage) if storage.absolute(path) != path)
    for path in own:
        storage.delete(path)
    # As long as its metadata is there, what is left can be found.
    storage.delete(METADATA)
    for directory in sorted({parent for path in own for parent in _parents(path)}, key=len, reverse=True):
        storage.delete_if_empty(directory)
    storage.delete_if_empty("")
    return [*sorted(storage.sizes()), *(f"{name}/" for name in storage.directories())]


def _parents(path: str) -> Iterator[str]:
    """The directories that a relative path goes through, but for its base."""
    while path := posixpath.dirname(path):
        yield path


def _kept(retained: Iterable[str], storage: Storage, read: Read) -> set[str] | None:
    """The files that these checkpoints refer to, relative to the job's directory; None where that is not known."""
    found: set[str] = set()
    for uri in retained:
        try:
            found |= _paths(read(uri), storage)
        except (NoCheckpoint, CorruptFile):
            # One that has no metadata is being written, or torn.
            return None
    return found


def _shared_by(uri: str, storage: Storage, read: Read) -> set[str]:
    try:
        return {path for path in _paths(read(uri), storage) if path.startswith(f"{SHARED}/")}
    except (NoCheckpoint, CorruptFile):
        return set()


def _paths(metadata: CheckpointMetadata, storage: Storage) -> set[str]:
    """Of its files, relative to the job's directory."""
    own = Storage.open(base_of(metadata.checkpoint.uri))
    return {storage.relative(canonical(own.absolute(file.path))) for file in files_of(metadata)}
