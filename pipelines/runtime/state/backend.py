"""The keyed state of one operator of one subtask: its tables by name, the key at hand, and the times it has reached.

Tables are asked for by name when the operator is made, or when a user's function is opened; what the changelog holds
of tables that nobody has asked for yet waits until somebody does. The times are kept because they decide what has
fired already and what is late: with them a new attempt goes on exactly as the old one would have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from ...types import RecordType
from ..buffers import END_OF_TIME, NO_WATERMARK
from .changelog import Kind, Message, Reader, read_times, rewrite, time_message, write
from .list_table import ListTable
from .map_table import MapTable
from .stateful import Origin
from .table import StateTable, Taking
from .timers import TimerTable
from .value_table import ValueTable

Table = TypeVar("Table", bound=StateTable)


class KeyedStateBackend:
    """One for each keyed operator. `current_key` is set by the operator before a user's function is called."""

    def __init__(self, key_type: RecordType, max_parallelism: int, key_groups: range | None = None) -> None:
        """`key_groups`: the subtask's own; None: all of them."""
        self._key_type = key_type
        self._max_parallelism = max_parallelism
        self._key_groups = range(max_parallelism) if key_groups is None else key_groups
        self._tables: dict[str, StateTable] = {}
        self._waiting: dict[str, list[tuple[Message, Taking | None]]] = {}
        self._taking: Taking | None = None
        self._origins_times: list[tuple[int, int]] = []
        self._reader = Reader()
        self.current_key: Any = None
        self.watermark = NO_WATERMARK
        """Event time that the operator has reached (ms)."""
        self.clock = NO_WATERMARK
        """Processing time that the operator has reached (ms)."""
        self._times_written = NO_WATERMARK, NO_WATERMARK

    def value_table(self, name: str, value_type: RecordType, *, namespaced: bool = False) -> ValueTable:
        """The table of that name. Raises ValueError where there is one of another form."""
        return self._table(ValueTable(name, self._key_type, value_type, self._max_parallelism, namespaced))

    def list_table(self, name: str, element_type: RecordType, *, namespaced: bool = False) -> ListTable:
        """The table of that name. Raises ValueError where there is one of another form."""
        return self._table(ListTable(name, self._key_type, element_type, self._max_parallelism, namespaced))

    def map_table(self, name: str, item_type: RecordType, value_type: RecordType) -> MapTable:
        """The table of that name. Raises ValueError where there is one of another form."""
        return self._table(MapTable(name, self._key_type, item_type, value_type, self._max_parallelism))

    def timer_table(self, name: str) -> TimerTable:
        """The table of that name. Raises ValueError where there is one of another form."""
        return self._table(TimerTable(name, self._key_type, self._max_parallelism))

    def take_changes(self) -> list[bytes]:
        """The changes since the last call, as messages for the changelog. Raises RecordTypeError."""
        messages: list[bytes] = []
        for table in self._tables.values():
            messages.extend(write(table.name, table.fingerprint, table.take_changes()))
        times = self.watermark, self.clock
        if times != self._times_written:
            messages.append(time_message(*times))
            self._times_written = times
        return messages

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        """All state as messages: see Stateful."""
        if self._times_written != (NO_WATERMARK, NO_WATERMARK):
            yield None, time_message(*self._times_written)
        for waiting in self._waiting.values():
            for message, _ in waiting:
                for data in rewrite(message):
                    yield None, data
        tables = [(table, table.full(sections)) for table in self._tables.values()]
        for number, section in enumerate(sections):
            for table, changes in tables:
                for data in write(table.name, table.fingerprint, changes[number]):
                    yield section, data

    def restore_from(self, origin: Origin | None) -> None:
        """Whose messages follow: see Stateful. Of the times that the origins had reached, the least count."""
        if origin is None:
            self._taking = None
            if self._origins_times:
                watermarks, clocks = zip(*self._origins_times, strict=True)
                self.watermark, self.clock = min(watermarks), min(clocks)
            self._origins_times = []
        else:
            written, own = origin.key_groups, self._key_groups
            wanted = range(max(written.start, own.start), min(written.stop, own.stop))
            self._taking = Taking(written, wanted)
            self._origins_times.append((NO_WATERMARK, NO_WATERMARK))

    def restore(self, data: bytes) -> None:
        """Applies a message of the changelog; all of them, in order. Raises ValueError for what is none."""
        message = self._reader.read(data)
        if message is None:
            return
        if message.kind is Kind.TIME:
            if self._taking is None:
                self.watermark, self.clock = self._times_written = read_times(message)
            else:
                self._origins_times[-1] = read_times(message)
        elif (table := self._tables.get(message.table)) is not None:
            _apply(table, message, self._taking)
        else:
            self._waiting.setdefault(message.table, []).append((message, self._taking))

    def begin_time_anew(self) -> None:
        """A clock that was at the end of time has told nothing yet."""
        self.watermark = NO_WATERMARK if self.watermark == END_OF_TIME else self.watermark
        self.clock = NO_WATERMARK if self.clock == END_OF_TIME else self.clock

    def snapshot(self) -> dict[str, Any]:
        """A copy of the state by table, and the times as `~times`."""
        tables = {name: table.snapshot() for name, table in self._tables.items()}
        return {**tables, "~times": (self.watermark, self.clock)}

    def _table(self, made: Table) -> Table:
        known = self._tables.get(made.name)
        if known is None:
            self._tables[made.name] = made
            for message, taking in self._waiting.pop(made.name, ()):
                _apply(made, message, taking)
            return made
        if not isinstance(known, type(made)) or known.fingerprint != made.fingerprint:
            raise ValueError(
                f"state {made.name!r} is a {known.form} and is asked for as a {made.form}:"
                " give each state of an operator a name of its own"
            )
        return known


def _apply(table: StateTable, message: Message, taking: Taking | None) -> None:
    if message.fingerprint != table.fingerprint:
        raise ValueError(
            f"the changelog holds state {table.name!r} in another layout than {table.form}:"
            " its type or the key's has changed; give the state, or the operator's uid, a new name"
        )
    table.apply(message.kind, message.payload, taking)
