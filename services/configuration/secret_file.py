"""Reads a secret from the first line of a file that an option names. The secret stays out of every message."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ...infra.config.options import ConfigOption
from .configuration import Configuration
from .errors import ConfigurationError

MIN_SECRET_LENGTH: Final = 16
"""In bytes."""


def read_secret(configuration: Configuration, option: ConfigOption[str | None], noun: str) -> bytes | None:
    """Returns the secret; None if the option names no file. `noun`: what messages call it.

    Raises ConfigurationError if the file can't be read, or its first line is too short.
    """
    name = configuration.get(option)
    if name is None:
        return None
    try:
        line = Path(name).read_bytes().partition(b"\n")[0].strip()
    except OSError as error:
        raise ConfigurationError([f"{option.key}: {name} can't be read: {error}"]) from None
    if len(line) < MIN_SECRET_LENGTH:
        wanted = f"a {noun} has at least {MIN_SECRET_LENGTH}: `openssl rand -hex 32` creates one"
        raise ConfigurationError(
            [f"{option.key}: the first line of {name} has {len(line)} bytes, but {wanted}"]
        )
    return line
