"""Errors of files in storage: each is one line that names the file.

A search for a checkpoint to restore skips a missing or corrupt one, since it will stay so. An unreachable storage says
nothing about its content, so the search is retried.
"""

from __future__ import annotations


class CheckpointError(Exception):
    """The base class."""


class MissingFile(CheckpointError):
    """A file does not exist."""


class CorruptFile(CheckpointError):
    """A file is shorter than recorded, or has other content."""


class NoCheckpoint(CheckpointError):
    """A directory has no checkpoint, or one that this version does not read."""


class StorageError(CheckpointError):
    """The storage is unreachable or refuses the request."""
