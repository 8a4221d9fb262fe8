"""The fsspec file systems of URLs, connected once in each process."""

from __future__ import annotations

import functools
import os
from typing import Any, Final

_LONGEST_REASON: Final = 300


def connect(url: str) -> tuple[Any, str]:
    """Returns the fsspec file system of `scheme://authority`, and its root as a path in it.

    Raises OSError naming the URL, whatever the file system's client raised.
    """
    # A forked child cannot use the connections and threads of its parent.
    return _connect(url, os.getpid())


def in_short(error: BaseException) -> str:
    """Returns an error's type and text on one line."""
    text = " ".join(str(error).split())[:_LONGEST_REASON]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@functools.lru_cache(maxsize=64)
def _connect(url: str, _process: int) -> tuple[Any, str]:
    import fsspec

    try:
        system, root = fsspec.core.url_to_fs(url)
    except Exception as error:  # whatever a client of a file system may raise
        raise OSError(f"{url} cannot be reached: {in_short(error)}") from error
    return system, root
