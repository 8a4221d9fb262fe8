"""The keyed state of one operator of one subtask: its tables by name, the current key, and the watermarks reached.

Tables are requested by name when the operator is created, or when a user's function is opened. Entries in the changelog
of a table that was not requested yet wait until it is, and are written again unchanged (type_coverage.py). The
watermarks are part of the state because they decide what has fired and what is late: a new attempt continues exactly as
the old one would have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from ...functions import StateTtlConfig
from ...graph.key_groups import key_group_of
from ...types import RecordType
from ..records.buffers import MAX_WATERMARK, NO_WATERMARK
from ..records.type_evolution import TypeMismatch
from .broadcast_table import PREFIX, BroadcastTable
from .changelog import (
    ChangeKind,
    ChangelogMessage,
    ChangelogReader,
    part_message,
    rewrite,
    time_message,
    write,
)
from .entry_store import HEAP, EntryStore, WaitingList
from .event_times import EventTimes, times_of
from .list_table import ListTable
from .map_table import MapTable
from .stateful import Origin
from .table import StateTable
from .table_schema import TableSchema, create_mismatch_error
from .timers import TimerTable
from .type_coverage import Taking, common
from .value_table import ValueTable

Table = TypeVar("Table", bound=StateTable)


class KeyedStateBackend:
    """The backend of one keyed operator. The operator sets `current_key` before it calls a user's function."""

    def __init__(
        self,
        key_type: RecordType,
        max_parallelism: int,
        key_groups: range | None = None,
        operator: str = "",
        store: EntryStore = HEAP,
        wall_clock: Callable[[], int] = lambda: 0,
    ) -> None:
        """`key_groups`: those of the subtask; None: all. `operator`: its name, for messages. `wall_clock` returns
        milliseconds and never decreases."""
        self.store = store
        """Where the entries of tables are, and the indexes that an operator computes from them."""
        self._wall_clock = wall_clock
        self._operator = operator
        self._key_type = key_type
        self._max_parallelism = max_parallelism
        self.key_groups = range(max_parallelism) if key_groups is None else key_groups
        """The subtask's own key groups."""
        self._tables: dict[str, StateTable] = {}
        self._waiting: dict[str, WaitingList] = {}
        self._schemas: dict[str, dict[int, TableSchema]] = {}
        """By table and fingerprint: the schemas of restored entries."""
        self._written_schemas: set[tuple[str, int]] = set()
        """The schemas that precede the messages of this subtask in the changelog."""
        self._taking: Taking | None = None
        """The part of the origin's state that is taken."""
        self._part: Taking | None = None
        """The part of the writer's state that the origin had taken."""
        self._origins: list[tuple[range, EventTimes]] = []
        self._reader = ChangelogReader()
        self.current_key: Any = None
        self.access_time: int | None = None
        """The processing time of all accesses to state in one call of a function (ms). The operator sets None before
        the call."""
        self.watermark = NO_WATERMARK
        """Event time that the operator has reached (ms)."""
        self.clock = NO_WATERMARK
        """Processing time that the operator has reached (ms)."""
        self._times_written = EventTimes()
        """The times at the last `take_changes`."""
        self._times = EventTimes()
        """The times of key groups that are ahead; the watermark and the clock may have advanced since."""

    @property
    def has_keys_ahead(self) -> bool:
        """Whether event time is ahead of `watermark` for some keys (see event_times.py)."""
        return bool(self._times.ahead)

    @property
    def greatest_watermark(self) -> int:
        """The greatest event time of any key."""
        return max(self.watermark, *(entry.watermark for entry in self._times.ahead), NO_WATERMARK)

    def watermark_for(self, key: Any) -> int:
        """Returns the event time of a key. Raises UnstableKey."""
        return max(self.watermark, self.former_watermark(key)) if self._times.ahead else self.watermark

    def former_watermark(self, key: Any) -> int:
        """Returns the event time of the key's former owner, if it was ahead of others. Raises UnstableKey."""
        return self._times.watermark_for(key_group_of(key, self._max_parallelism))

    def read_access_time(self) -> int:
        """Returns the processing time of the present call of a function (ms)."""
        if self.access_time is None:
            # At the end of the input all timers fire, but no state expires.
            clock = NO_WATERMARK if self.clock == MAX_WATERMARK else self.clock
            self.access_time = max(self._wall_clock(), clock)
        return self.access_time

    def value_table(
        self,
        name: str,
        value_type: RecordType,
        *,
        namespaced: bool = False,
        kind: str = "value",
        ttl: StateTtlConfig | None = None,
        key_type: RecordType | None = None,
    ) -> ValueTable:
        """Returns the table of that name. Raises ValueError if it exists in another form.

        `key_type`: that of keys with a window (window_key.py); None: that of the backend.
        """
        keys = key_type or self._key_type
        return self._table(
            ValueTable(name, keys, value_type, self._max_parallelism, namespaced, self.store, kind, ttl)
        )

    def list_table(
        self,
        name: str,
        element_type: RecordType,
        *,
        namespaced: bool = False,
        ttl: StateTtlConfig | None = None,
        key_type: RecordType | None = None,
    ) -> ListTable:
        """Returns the table of that name. Raises ValueError if it exists in another form."""
        keys = key_type or self._key_type
        return self._table(
            ListTable(name, keys, element_type, self._max_parallelism, namespaced, self.store, ttl)
        )

    def map_table(
        self,
        name: str,
        item_type: RecordType,
        value_type: RecordType,
        *,
        ttl: StateTtlConfig | None = None,
        key_type: RecordType | None = None,
    ) -> MapTable:
        """Returns the table of that name. Raises ValueError if it exists in another form."""
        keys = key_type or self._key_type
        return self._table(
            MapTable(name, keys, item_type, value_type, self._max_parallelism, self.store, ttl)
        )

    def broadcast_table(self, name: str, item_type: RecordType, value_type: RecordType) -> BroadcastTable:
        """Returns the table of that name, which is the same in every subtask. Raises ValueError if it exists in
        another form."""
        return self._table(BroadcastTable(name, item_type, value_type, self._max_parallelism))

    def timer_table(self, name: str, *, key_type: RecordType | None = None) -> TimerTable:
        """Returns the table of that name. Raises ValueError if it exists in another form."""
        return self._table(TimerTable(name, key_type or self._key_type, self._max_parallelism, self.store))

    def take_changes(self) -> list[bytes]:
        """Returns the changes since the last call, as messages for the changelog. Raises RecordTypeError."""
        messages: list[bytes] = []
        self.access_time = None
        for table in self._tables.values():
            if table.ttl is not None:
                table.begin_commit(self.read_access_time())
            changes = list(write(table.name, table.fingerprint, table.take_changes()))
            layout = table.name, table.fingerprint
            if changes and layout not in self._written_schemas:
                self._written_schemas.add(layout)
                messages.extend(table.schema.messages(table.name))
            messages.extend(changes)
        self.store.flush()
        self._times = times = self._times.at(self.watermark, self.clock)
        if times != self._times_written:
            messages.append(time_message(times))
            self._times_written = times
        return messages

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        """Yields all state as messages: see Stateful."""
        if self._times_written != EventTimes():
            yield None, time_message(self._times_written)
        schemas = [
            (name, schema) for name in self._waiting for schema in self._schemas.get(name, {}).values()
        ]
        schemas += [(table.name, table.schema) for table in self._tables.values()]
        for name, schema in schemas:
            for data in schema.messages(name):
                yield None, data
        for data in self._full_waiting():
            yield None, data
        keyed: list[StateTable] = []
        for table in self._tables.values():
            if not isinstance(table, BroadcastTable):
                keyed.append(table)
                continue
            for data in write(table.name, table.fingerprint, table.whole()):
                yield None, data
        tables = [(table, table.full(sections)) for table in keyed]
        for number, section in enumerate(sections):
            for table, changes in tables:
                for data in write(table.name, table.fingerprint, changes[number]):
                    yield section, data

    def restore_from(self, origin: Origin | None) -> None:
        """Announces the writer of the next messages: see Stateful. For times see `times_of`."""
        if origin is None:
            self._taking = None
            if self._origins:
                self._reach(times_of(self.key_groups, self._origins))
            self._origins = []
        else:
            written, own = origin.key_groups, self.key_groups
            self._taking = Taking(written, common(written, own), is_first=not self._origins)
            self._origins.append((written, EventTimes()))

    def restore(self, data: bytes) -> None:
        """Applies a message of the changelog; call it for all of them, in order. Raises ValueError for an invalid
        one."""
        message = self._reader.read(data)
        if message is None:
            return
        if message.kind is ChangeKind.TIME:
            if self._taking is None:
                self._times_written = EventTimes.from_bytes(message.payload)
                self._reach(self._times_written)
            else:
                self._origins[-1] = self._origins[-1][0], EventTimes.from_bytes(message.payload)
        elif message.kind is ChangeKind.SCHEMA:
            self._schemas.setdefault(message.table, {})[message.fingerprint] = TableSchema.from_message(
                message
            )
            if self._taking is None:
                self._written_schemas.add((message.table, message.fingerprint))
        elif message.kind is ChangeKind.PART:
            self._part = Taking.from_bytes(message.payload) if message.payload else None
        else:
            taking = self._taking if self._part is None else self._part.within(self._taking)
            if (table := self._tables.get(message.table)) is not None:
                self._apply(table, message, taking)
            elif taking is None or (taking.is_first if message.table.startswith(PREFIX) else taking.wanted):
                if (waiting := self._waiting.get(message.table)) is None:
                    waiting = self._waiting[message.table] = self.store.create_list()
                waiting.append((message, taking))

    def begin_time_anew(self) -> None:
        """Resets clocks that were at the end of time."""
        self._reach(self._times.at(self.watermark, self.clock).begin_anew())

    def snapshot(self) -> dict[str, Any]:
        """Returns a copy of the state by table, with the times as `~times`."""
        tables = {name: table.snapshot() for name, table in self._tables.items()}
        return {**tables, "~times": self._times.at(self.watermark, self.clock)}

    def _full_waiting(self) -> Iterator[bytes]:
        """Yields the messages of tables that were not requested, as their writers wrote them."""
        part: Taking | None = None
        for waiting in self._waiting.values():
            for message, taking in waiting:
                if taking != part:
                    part = taking
                    yield part_message(part)
                yield from rewrite(message)
        if part is not None:
            yield part_message(None)

    def _reach(self, times: EventTimes) -> None:
        self._times, self.watermark, self.clock = times, times.watermark, times.clock

    def _table(self, made: Table) -> Table:
        known = self._tables.get(made.name)
        if known is None:
            self._tables[made.name] = made
            if (waiting := self._waiting.pop(made.name, None)) is not None:
                try:
                    for message, taking in waiting:
                        self._apply(made, message, taking)
                finally:
                    waiting.clear()
            return made
        if not isinstance(known, type(made)) or known.fingerprint != made.fingerprint:
            raise ValueError(
                f"state {made.name!r} is a {known.form} but is requested as a {made.form}:"
                " give each state of an operator a name of its own"
            )
        return known

    def _apply(self, table: StateTable, message: ChangelogMessage, taking: Taking | None) -> None:
        written = self._schemas.get(table.name, {}).get(message.fingerprint)
        try:
            if written is not None:
                form = table.written_form(written, self.read_access_time())
            elif message.fingerprint in (table.fingerprint, table.fingerprint_without_schema):
                form = None
            else:
                raise TypeMismatch("the release that wrote it stored no schema")
            table.apply(message.kind, message.payload, taking, form)
        except TypeMismatch as error:
            before = "in another layout" if written is None else f"as a {written}"
            raise create_mismatch_error(table.name, self._operator, before, table.schema, error) from None
