"""The keyed state of one operator of one subtask: its tables by name, the key at hand, and the times it has reached.

Tables are asked for by name when the operator is made, or when a user's function is opened; what the changelog holds
of tables that nobody has asked for yet waits until somebody does. The times are kept because they decide what has
fired already and what is late: with them a new attempt goes on exactly as the old one would have.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ...types import RecordType
from ..buffers import NO_WATERMARK
from .changelog import Kind, Message, Reader, read_times, time_message, write
from .list_table import ListTable
from .map_table import MapTable
from .table import StateTable
from .timers import TimerTable
from .value_table import ValueTable

Table = TypeVar("Table", bound=StateTable)


class KeyedStateBackend:
    """One for each keyed operator. `current_key` is set by the operator before a user's function is called."""

    def __init__(self, key_type: RecordType, max_parallelism: int) -> None:
        self._key_type = key_type
        self._max_parallelism = max_parallelism
        self._tables: dict[str, StateTable] = {}
        self._waiting: dict[str, list[Message]] = {}
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

    def restore(self, data: bytes) -> None:
        """Applies a message of the changelog; all of them, in order. Raises ValueError for what is none."""
        message = self._reader.read(data)
        if message is None:
            return
        if message.kind is Kind.TIME:
            self.watermark, self.clock = self._times_written = read_times(message)
        elif (table := self._tables.get(message.table)) is not None:
            _apply(table, message)
        else:
            self._waiting.setdefault(message.table, []).append(message)

    def snapshot(self) -> dict[str, Any]:
        """A copy of the state by table, and the times as `~times`."""
        tables = {name: table.snapshot() for name, table in self._tables.items()}
        return {**tables, "~times": (self.watermark, self.clock)}

    def _table(self, made: Table) -> Table:
        known = self._tables.get(made.name)
        if known is None:
            self._tables[made.name] = made
            for message in self._waiting.pop(made.name, ()):
                _apply(made, message)
            return made
        if not isinstance(known, type(made)) or known.fingerprint != made.fingerprint:
            raise ValueError(
                f"state {made.name!r} is a {known.form} and is asked for as a {made.form}:"
                " give each state of an operator a name of its own"
            )
        return known


def _apply(table: StateTable, message: Message) -> None:
    if message.fingerprint != table.fingerprint:
        raise ValueError(
            f"the changelog holds state {table.name!r} in another layout than {table.form}:"
            " its type or the key's has changed; give the state, or the operator's uid, a new name"
        )
    table.apply(message.kind, message.payload)
