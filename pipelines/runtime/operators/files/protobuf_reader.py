"""Reads files of length-delimited Protobuf messages: the length of each message as a varint, then the message.

Other languages write them by `writeDelimitedTo`. Such a file has no schema and no marks between messages: it is one
split, and a message class says what is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import pyarrow as pa

from ....types import RecordType
from ...common.failures import TaskError
from ...formats.factory import create_reader
from ...formats.format import FormatKind, ValueFormat, read_valid
from .file_reader import FileChunk, unreadable
from .source_storage import FoundFile, open_file
from .text_reader import codec_of

_BLOCK_BYTES: Final = 1 << 20
_MOST_MESSAGE_BYTES: Final = (1 << 31) - 1
"""That of Protobuf."""
_MOST_LENGTH_BYTES: Final = 5


class ProtobufFileReader:
    """Messages of the class; with a declared type, records of it. Files are compressed as those of text are."""

    def __init__(self, record_type: RecordType, message: str | None) -> None:
        self._reader = create_reader(ValueFormat(FormatKind.PROTOBUF, message=message), record_type)

    def splits(self, file: FoundFile) -> int:
        del file
        return 1

    def read(self, file: FoundFile, split: int) -> Iterator[FileChunk]:
        count = 0
        try:
            codec = codec_of(file.path)
            with closing(open_file(file.path)) as source:
                stream = pa.CompressedInputStream(source, codec) if codec else source
                for messages in _messages(stream):
                    yield FileChunk(rows=self._records(file.path, count, messages))
                    count += len(messages)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise unreadable(file.path, f"a message behind {self.place(split, count)}", error) from error

    def place(self, split: int, record: int) -> str:
        del split
        return f"message {record + 1}"

    def _records(self, path: str, first: int, messages: list[bytes]) -> list[Any]:
        """Raises TaskError for the first message that cannot be read."""
        batch, bad = read_valid(
            self._reader, pa.repeat(pa.scalar(0, pa.int64()), len(messages)), pa.array(messages, pa.binary())
        )
        for each in bad:
            raise TaskError(f"{path} could not be read at {self.place(0, first + each.index)}: {each.why}")
        return list(batch.values)


def _messages(stream: Any) -> Iterator[list[bytes]]:
    """Yields some messages at a time. Raises ValueError."""
    rest, missing = b"", 1
    while more := stream.read(max(_BLOCK_BYTES, missing)):
        data = rest + more
        messages, end, missing = _cut(data)
        rest = data[end:]
        if messages:
            yield messages
    if rest:
        raise ValueError("the file ends within a message")


def _cut(data: bytes) -> tuple[list[bytes], int, int]:
    """Returns the complete messages at the beginning, where they end, and how many bytes the next one lacks at least.

    Raises ValueError.
    """
    found: list[bytes] = []
    at, size = 0, len(data)
    while at < size:
        length, begin = data[at], at + 1
        if length > 0x7F:
            length, begin = _length(data, at)
        end = begin + length
        if begin > size or end > size:
            return found, at, end - size
        found.append(data[begin:end])
        at = end
    return found, at, 1


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Returns the length of the message at this place, and where the message begins: behind the data, if they end
    within the length. Raises ValueError."""
    length = 0
    for count in range(_MOST_LENGTH_BYTES):
        if at + count == len(data):
            return 0, len(data) + 1
        byte = data[at + count]
        length |= (byte & 0x7F) << 7 * count
        if byte <= 0x7F and length <= _MOST_MESSAGE_BYTES:
            return length, at + count + 1
        if byte <= 0x7F:
            break
    raise ValueError("its length is no length of a message: the file does not have length-delimited messages")
