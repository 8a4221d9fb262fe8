"""Where savepoints are, as people name them: a path of theirs, or a URI; and what is wrong with one that can't be used.

On the wire a place in storage is an absolute URI: relative paths are of the directory that the command runs in.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..exit_codes import CommandFailure, ExitCode

if TYPE_CHECKING:
    from ....pipelines.checkpoint.metadata import CheckpointMetadata


def parse_location(text: str) -> str:
    """The absolute URI of a path or URI. Raises Failure for what is neither."""
    from ....infra.config.option_types import LOCATION

    whole = text if "://" in text or text.startswith("file:") else os.path.abspath(os.path.expanduser(text))
    try:
        if text.strip():
            return LOCATION.read(whole)
    except ValueError:
        pass
    raise CommandFailure(
        ExitCode.USAGE,
        f"{text!r} is no place in storage: give a path, or a URI such as s3://bucket/directory",
    )


def parse_optional_location(text: str | None) -> str | None:
    """As `location`; None stays None."""
    return None if text is None else parse_location(text)


def read_checkpoint_metadata(text: str) -> CheckpointMetadata:
    """What a savepoint's or checkpoint's directory says of itself, read here.

    Raises Failure: NOT_FOUND where there is none that this version reads, SAVEPOINT where it is torn, or storage away.
    """
    from ....infra.storage.errors import CheckpointError, NoCheckpoint
    from ....pipelines.checkpoint.metadata import read_metadata

    uri = parse_location(text)
    try:
        return read_metadata(uri)
    except NoCheckpoint as error:
        raise CommandFailure(ExitCode.NOT_FOUND, str(error)) from error
    except CheckpointError as error:
        raise CommandFailure(ExitCode.SAVEPOINT, str(error)) from error


def check_savepoint(text: str, home: Path) -> str:
    """The URI of a savepoint that a job is to begin with, looked at where that can be done from here.

    A cluster of this machine sees what is here; of another machine's paths nothing is known. Raises Failure as
    `read_checkpoint_metadata`.
    """
    from ..local.cluster_record import read_record

    uri = parse_location(text)
    if uri.startswith("file://") and read_record(home) is not None:
        read_checkpoint_metadata(uri)
    return uri
