"""What SQLite says and raises, in the history index's words, and how its bytes are kept."""

from __future__ import annotations

import sqlite3
import zlib

import msgspec

_MIN_COMPRESSED_BYTES = 512
_LEVEL = 1
_PLAIN, _DEFLATED = b"\0", b"\1"
_OURS = frozenset(
    {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA}
)
"""What SQLite says of a file that is none of ours, or a damaged one. All else is the machine's: disks, permissions."""


class CorruptIndex(Exception):
    """The file is no index, not the one that is wanted, or not as it was written; the message says why."""


class OutdatedIndex(CorruptIndex):
    """Another release made the file, which may come to other states."""


class IndexUnavailable(Exception):
    """The file can't be read or written here and now, whatever is in it; the message says why."""


class translate_errors:
    """What SQLite, and what it gives, may raise, as Damaged or OutOfReach."""

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        match error:
            case sqlite3.ProgrammingError():
                # Of ours: no reason to throw anything away.
                pass
            case sqlite3.Error():
                code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
                kind = CorruptIndex if code in _OURS else IndexUnavailable
                raise kind(one_line(error)) from error
            case msgspec.MsgspecError() | zlib.error() | TypeError() | ValueError() | OverflowError():
                raise CorruptIndex(f"what is in it can't be read: {one_line(error)}") from error
            case _:
                pass


class transaction:
    """All of it or nothing, and nobody else's writing in between."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, _: object, __: object) -> None:
        try:
            if kind is None:
                self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def compress(data: bytes) -> bytes:
    """As it is kept: compressed, where there is enough of it."""
    return _PLAIN + data if len(data) < _MIN_COMPRESSED_BYTES else _DEFLATED + zlib.compress(data, _LEVEL)


def decompress(packed: bytes) -> bytes:
    """As it was given. Raises zlib.error."""
    return zlib.decompress(packed[1:]) if packed[:1] == _DEFLATED else packed[1:]


def one_line(error: BaseException) -> str:
    """What an error says, for the middle of a sentence."""
    return " ".join(str(error).split()) or type(error).__name__
