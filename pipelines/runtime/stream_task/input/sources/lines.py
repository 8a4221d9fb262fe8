"""Text from a byte stream: records separated by a delimiter, as Flink's socketTextStream does."""

from __future__ import annotations


class LineSplitter:
    r"""Cuts a byte stream of UTF-8 into records. Invalid bytes become U+FFFD, because a source must continue.

    With the delimiter "\n", a carriage return before it is dropped, as in Flink.
    """

    def __init__(self, delimiter: str) -> None:
        self._delimiter = delimiter.encode()
        self._drop_return = delimiter == "\n"
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Returns the records that these bytes complete."""
        *complete, self._rest = (self._rest + data).split(self._delimiter)
        return [self._text(piece) for piece in complete]

    def end(self) -> list[str]:
        """Returns the last record if no delimiter ended it."""
        rest, self._rest = self._rest, b""
        return [self._text(rest)] if rest else []

    def _text(self, piece: bytes) -> str:
        if self._drop_return and piece.endswith(b"\r"):
            piece = piece[:-1]
        return piece.decode(errors="replace")
