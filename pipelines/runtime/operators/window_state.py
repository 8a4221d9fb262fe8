"""Keyed window state, and its changelog.

State is window start -> key -> accumulator. What changed since the last commit is written to the changelog
as *puts* (an Arrow stream: window, key group, key, accumulator) and *drops* (windows that are gone). Applied
in order onto nothing they give the state: that is how a new attempt restores it. The key group is written so
that state can be found and moved by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView
from typing import Any, Final

import msgspec
import pyarrow as pa

from ...graph.key_groups import key_group_of
from ...types import RecordType

_PUT: Final = b"P"
_DROP: Final = b"D"
_WINDOW: Final = "~window"
_KEY_GROUP: Final = "~key-group"
_KEY: Final = "~key"
# A message of the changelog stays well below Kafka's usual limit of 1 MiB.
_MESSAGE_LIMIT: Final = 900_000

Accumulators = dict[Any, Any]


class WindowState:
    """The accumulators of all open windows of one subtask."""

    def __init__(self, key_type: RecordType, value_type: RecordType, max_parallelism: int) -> None:
        self._key_type = key_type
        self._value_type = value_type
        self._max_parallelism = max_parallelism
        self._schema = pa.schema(
            [
                pa.field(_WINDOW, pa.int64()),
                pa.field(_KEY_GROUP, pa.int32()),
                pa.field(_KEY, key_type.arrow_type()),
                *value_type.schema(),
            ]
        )
        self._windows: dict[int, Accumulators] = {}
        self._touched: dict[int, set[Any]] = {}
        self._dropped: set[int] = set()

    def windows(self) -> KeysView[int]:
        """The starts of the open windows (ms)."""
        return self._windows.keys()

    def open_window(self, start: int) -> Accumulators:
        """The accumulators of a window by key, to be changed in place and then to be `touch`ed."""
        return self._windows.setdefault(start, {})

    def touch(self, start: int, keys: Iterable[Any]) -> None:
        """Notes that these keys of a window have changed."""
        self._touched.setdefault(start, set()).update(keys)

    def drop_window(self, start: int) -> Accumulators:
        """Removes a window and gives what it held."""
        self._touched.pop(start, None)
        self._dropped.add(start)
        return self._windows.pop(start, {})

    def take_changes(self) -> list[bytes]:
        """The changes since the last call, as messages for the changelog. Raises RecordTypeError."""
        messages = []
        if self._dropped:
            # First: a window that was dropped may have been opened anew since.
            messages.append(_DROP + msgspec.msgpack.encode(sorted(self._dropped)))
        entries = [
            (start, key, self._windows[start][key]) for start, keys in self._touched.items() for key in keys
        ]
        messages.extend(self._puts(entries))
        self._dropped.clear()
        self._touched.clear()
        return messages

    def restore(self, message: bytes) -> None:
        """Applies a message of the changelog. Raises ValueError for what is none."""
        match message[:1]:
            case b"D":
                for start in msgspec.msgpack.decode(message[1:], type=list[int]):
                    self._windows.pop(start, None)
            case b"P":
                for start, key, value in self._read_puts(message[1:]):
                    self.open_window(start)[key] = value
            case kind:
                raise ValueError(f"the changelog holds a message of unknown kind {kind!r}")

    def snapshot(self) -> dict[int, Accumulators]:
        """A copy of the state: window start -> key -> accumulator."""
        return {start: dict(accumulators) for start, accumulators in self._windows.items()}

    def _puts(self, entries: list[tuple[int, Any, Any]]) -> Iterator[bytes]:
        if not entries:
            return
        starts, keys, values = zip(*entries, strict=True)
        groups = [key_group_of(key, self._max_parallelism) for key in keys]
        columns = [
            pa.array(starts, pa.int64()),
            pa.array(groups, pa.int32()),
            self._key_type.encode(keys),
            *self._value_type.to_columns(values),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema) as writer:
            writer.write_batch(batch)
        message = _PUT + sink.getvalue().to_pybytes()
        if len(message) > _MESSAGE_LIMIT and len(entries) > 1:
            middle = len(entries) // 2
            yield from self._puts(entries[:middle])
            yield from self._puts(entries[middle:])
        else:
            yield message

    def _read_puts(self, data: bytes) -> Iterator[tuple[int, Any, Any]]:
        table = pa.ipc.open_stream(data).read_all()
        starts = table.column(_WINDOW).to_pylist()
        keys = self._key_type.decode(table.column(_KEY).combine_chunks())
        values = self._value_type.from_columns(table.columns[3:])
        return zip(starts, keys, values, strict=True)
