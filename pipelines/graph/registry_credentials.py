"""Reads the user and password for a schema registry from a file: so they are in no URL, configuration, event or log.

Each line of the file is `user:password`, for every registry, or `URL user:password`, for that registry alone. Empty
lines and lines that begin with `#` are ignored.
"""

from __future__ import annotations

from pathlib import Path


def read_credentials(file: str | None, url: str) -> str | None:
    """Returns `user:password` for the registry at the URL; None if the file has none, or does not exist.

    Raises ValueError, one line without the secret.
    """
    if file is None:
        return None
    try:
        lines = Path(file).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from None
    found: str | None = None
    for number, line in enumerate(lines, 1):
        first, _, rest = line.strip().partition(" ")
        if not first or first.startswith("#"):
            continue
        is_url = "://" in first
        credentials = rest.strip() if is_url else line.strip()
        user, colon, password = credentials.partition(":")
        if not (user and colon and password):
            raise ValueError(f"line {number} of {file} is neither user:password nor URL user:password")
        if is_url and first.rstrip("/") == url.rstrip("/"):
            return credentials
        if not is_url and found is None:
            found = credentials
    return found
