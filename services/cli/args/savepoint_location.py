"""Parses the location of a savepoint, a path or URI, and checks that the savepoint can be used.

Events hold absolute URIs, so a relative path is resolved against the command's working directory.
"""

from __future__ import annotations

import os
from pathlib import Path

from ....infra.config.option_types import LOCATION
from ....infra.storage.errors import CheckpointError, NoCheckpoint
from ....pipelines.checkpoint.metadata import CheckpointMetadata, read_metadata, verify
from ..exit_codes import CommandFailure, ExitCode
from ..local.cluster_record import read_record


def parse_location(text: str) -> str:
    """Returns the absolute URI of a path or URI. Raises CommandFailure for other texts."""
    whole = text if "://" in text or text.startswith("file:") else os.path.abspath(os.path.expanduser(text))
    try:
        if text.strip():
            return LOCATION.read(whole)
    except ValueError:
        pass
    raise CommandFailure(
        ExitCode.USAGE,
        f"{text!r} is no path or URI: give a path, or a URI such as s3://bucket/directory",
    )


def parse_optional_location(text: str | None) -> str | None:
    """Like `parse_location`; returns None for None."""
    return None if text is None else parse_location(text)


def read_checkpoint_metadata(text: str) -> CheckpointMetadata:
    """Reads the metadata of a savepoint or checkpoint in this process.

    Raises CommandFailure: NOT_FOUND if there is none that this version can read, SAVEPOINT if it is damaged or the
    storage fails.
    """
    uri = parse_location(text)
    try:
        return read_metadata(uri)
    except NoCheckpoint as error:
        raise CommandFailure(ExitCode.NOT_FOUND, str(error)) from error
    except CheckpointError as error:
        raise CommandFailure(ExitCode.SAVEPOINT, str(error)) from error


def find_faults(metadata: CheckpointMetadata) -> list[str]:
    """Reads all files, and returns what is missing or damaged. Raises CommandFailure if the storage fails."""
    try:
        return verify(metadata, checksums=True)
    except CheckpointError as error:
        raise CommandFailure(ExitCode.SAVEPOINT, str(error)) from error


def check_savepoint(text: str, home: Path) -> str:
    """Returns the URI of the savepoint that a job restores, after a check of its metadata.

    A file:// URI is checked only if the cluster runs on this machine. Raises CommandFailure as
    `read_checkpoint_metadata`.
    """
    uri = parse_location(text)
    if uri.startswith("file://") and read_record(home) is not None:
        read_checkpoint_metadata(uri)
    return uri
