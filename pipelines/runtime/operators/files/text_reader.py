"""Reads text files: a record for each line. Compressed files (by their name: .gz, .bz2, .zst) are one split.

The text is UTF-8. Invalid bytes become U+FFFD, and a carriage return before a line feed is dropped, as from a socket.
Arrow cuts the lines: no Python object is made for any of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from .file_reader import SPLIT_BYTES, FileChunk, bounds, byte_splits, place_in_split, read_range, unreadable
from .source_storage import FoundFile, open_file

_PIECE_BYTES: Final = 1 << 20
_CODECS: Final = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}


class TextFileReader:
    """Reads lines, without their line ends."""

    def splits(self, file: FoundFile) -> int:
        return 1 if codec_of(file.path) else byte_splits(file.size)

    def read(self, file: FoundFile, split: int) -> Iterator[FileChunk]:
        codec = codec_of(file.path)
        try:
            with closing(open_file(file.path)) as source:
                parts = _unpacked(source, codec) if codec else _plain(source, file, split)
                for lines in _lines(parts):
                    yield FileChunk(columns=[lines])
        except OSError as error:
            where = "its beginning" if split == 0 else f"byte {split * SPLIT_BYTES}"
            raise unreadable(file.path, where, error) from error

    def place(self, split: int, record: int) -> str:
        return place_in_split(split, "line", record)


def split_lines(data: bytes) -> pa.StringArray:
    """Returns the lines separated by line feeds; one more than there are line feeds."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").removesuffix(b"\r")
    if not data.isascii():
        data = data.decode(errors="replace").encode()
    whole = pa.StringArray.from_buffers(
        1, pa.array([0, len(data)], pa.int32()).buffers()[1], pa.py_buffer(data)
    )
    lines: pa.StringArray = pc.split_pattern(whole, "\n").flatten()
    return lines


def codec_of(path: str) -> str | None:
    """Returns the compression of a file by its name; None if there is none."""
    return _CODECS.get(path.rpartition(".")[2].lower())


def _plain(source: Any, file: FoundFile, split: int) -> Iterator[bytes]:
    begin, end = bounds(source, file.size, split, b"\n")
    for at in range(begin, end, _PIECE_BYTES):
        yield read_range(file.path, at, min(end, at + _PIECE_BYTES), source)


def _unpacked(source: Any, codec: str) -> Iterator[bytes]:
    with pa.CompressedInputStream(source, codec) as stream:
        while data := stream.read(_PIECE_BYTES):
            yield data


def _lines(parts: Iterator[bytes]) -> Iterator[pa.StringArray]:
    partial: list[bytes] = []
    for part in parts:
        complete, mark, rest = part.rpartition(b"\n")
        if mark:
            yield split_lines(b"".join([*partial, complete]))
            partial = []
        if rest:
            partial.append(rest)
    if partial:
        yield split_lines(b"".join(partial))
