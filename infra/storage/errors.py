"""What can be wrong with checkpoints in storage: each error is one line that names the file.

Whoever looks for a checkpoint to restore passes over one that is missing or torn, since it will stay so; storage that
can't be reached says nothing about what is in it, and is asked again.
"""

from __future__ import annotations


class CheckpointError(Exception):
    """Of them all."""


class MissingFile(CheckpointError):
    """A file is not there."""


class CorruptFile(CheckpointError):
    """A file is shorter than it was said to be, or holds other bytes."""


class NoCheckpoint(CheckpointError):
    """A directory holds no checkpoint, or one that this version does not read."""


class StorageError(CheckpointError):
    """Storage can't be reached, or refuses."""
