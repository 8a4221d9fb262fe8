"""The contents of fixed windows for each key: the records themselves, or their aggregate.

The records of a batch are first aggregated by pane and key, before the state is touched. A pane is then merged into
each window that it is a part of, as a copy if it could be changed in place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from ...types import RecordType
from ..records.batch import Batch
from ..records.record_copying import create_copier
from ..state_backend.keyed_state_backend import KeyedStateBackend
from .aggregation import Aggregation
from .column_aggregation import ColumnAggregation
from .keyed import KeySelector
from .user_functions import OrderedCalls
from .window_assigner import FixedWindowAssigner, Ints

_MISSING: Final = object()


class WindowState(ABC):
    """The windows by their start."""

    @abstractmethod
    def starts(self) -> Collection[int]:
        """Returns the starts of the existing windows."""

    @abstractmethod
    def add(self, batch: Batch, records: OrderedCalls, times: Ints) -> None:
        """Adds records to all of their windows; `records` are those of the batch, one by one."""

    @abstractmethod
    def add_one(self, start: int, key: Any, value: Any) -> None:
        """Adds a record to one window."""

    @abstractmethod
    def get(self, start: int) -> Iterable[tuple[Any, Sequence[Any]]]:
        """Yields key and elements of a window, in the order in which the keys arrived."""

    @abstractmethod
    def get_for_key(self, start: int, key: Any) -> Sequence[Any]:
        """Returns the elements of one key of a window."""

    @abstractmethod
    def keys(self, start: int) -> Iterable[Any]:
        """Returns the keys of a window."""

    @abstractmethod
    def drop(self, start: int) -> None:
        """Removes a window."""


class AggregatedWindowState(WindowState):
    """One accumulator for each window and key; its elements are the one result."""

    def __init__(
        self,
        backend: KeyedStateBackend,
        folded_type: RecordType,
        assigner: FixedWindowAssigner,
        keys: KeySelector,
        folding: Aggregation,
        columns: ColumnAggregation | None,
        record_type: RecordType,
    ) -> None:
        self._backend = backend
        self._table = backend.value_table("~windows", folded_type, namespaced=True)
        self._assigner = assigner
        self._keys = keys
        self._folding = folding
        self._columns = columns
        self._record_type = record_type
        self._copy = create_copier(record_type)

    def starts(self) -> Collection[int]:
        return self._table.spaces()

    def add(self, batch: Batch, records: OrderedCalls, times: Ints) -> None:
        panes = self._assigner.panes(times)
        if not self._folding.is_mergeable:
            self._add_each(records, panes)
            return
        if self._columns is not None and batch.is_columnar:
            groups = self._columns.fold(batch, panes)
            if groups is not None:
                keys = self._keys.select_columns(groups.columns)
                values = self._record_type.from_columns(groups.columns)
                self._merge(_by_pane(groups.windows, keys, values))
                return
        folded = self._fold_rows(records, panes)
        records.end()
        self._merge(folded)

    def add_one(self, start: int, key: Any, value: Any) -> None:
        space = self._table.space(start)
        held = space.get(key, _MISSING)
        space[key] = self._folding.first(value) if held is _MISSING else self._folding.add(held, value)
        self._table.touch((key,), start)

    def get(self, start: int) -> Iterable[tuple[Any, Sequence[Any]]]:
        space = self._table.space(start)
        if self._folding.is_mergeable:
            for key, folded in space.items():
                yield key, (folded,)
            return
        result, backend = self._folding.result, self._backend
        for key, folded in space.items():
            backend.current_key = key
            backend.access_time = None
            yield key, (result(folded),)

    def get_for_key(self, start: int, key: Any) -> Sequence[Any]:
        return (self._folding.result(self._table.space(start)[key]),)

    def keys(self, start: int) -> Iterable[Any]:
        return iter(self._table.space(start))

    def drop(self, start: int) -> None:
        self._table.drop(start)

    def _fold_rows(self, records: OrderedCalls, panes: Ints) -> dict[int, dict[Any, Any]]:
        reduce = self._folding.add
        partials: dict[int, dict[Any, Any]] = {}
        within = None  # most records are in the pane of the previous one
        partial: dict[Any, Any] = {}
        for pane, key, value in zip(panes.tolist(), self._keys.select(records), records, strict=True):
            if pane != within:
                within = pane
                partial = partials.setdefault(pane, {})
            held = partial.get(key, _MISSING)
            partial[key] = value if held is _MISSING else reduce(held, value)
        return partials

    def _merge(self, partials: dict[int, dict[Any, Any]]) -> None:
        merge = self._folding.merge
        for pane, partial in partials.items():
            starts = self._assigner.starts(pane)
            for start in starts:
                given = partial
                if self._copy is not None and start != starts[-1]:
                    given = {key: self._copy(value) for key, value in partial.items()}
                space = self._table.space(start)
                for key, value in given.items():
                    held = space.get(key, _MISSING)
                    space[key] = value if held is _MISSING else merge(held, value)
                self._table.touch(partial, start)

    def _add_each(self, records: OrderedCalls, panes: Ints) -> None:
        for pane, key, value in zip(panes.tolist(), self._keys.select(records), records, strict=True):
            starts = self._assigner.starts(pane)
            for start in starts:
                copy = self._copy if start != starts[-1] else None
                self.add_one(start, key, value if copy is None else copy(value))


class ListWindowState(WindowState):
    """All records of each window and key."""

    def __init__(
        self,
        backend: KeyedStateBackend,
        record_type: RecordType,
        assigner: FixedWindowAssigner,
        keys: KeySelector,
    ) -> None:
        self._table = backend.list_table("~windows", record_type, namespaced=True)
        self._assigner = assigner
        self._keys = keys
        self._copy = create_copier(record_type)

    def starts(self) -> Collection[int]:
        return self._table.spaces()

    def add(self, batch: Batch, records: OrderedCalls, times: Ints) -> None:
        by_start: dict[int, dict[Any, list[Any]]] = {}
        panes = self._assigner.panes(times).tolist()
        for pane, key, value in zip(panes, self._keys.select(records), records, strict=True):
            # In the order of arrival in each window, whichever panes the records are in.
            starts = self._assigner.starts(pane)
            for start in starts:
                given = value if self._copy is None or start == starts[-1] else self._copy(value)
                by_start.setdefault(start, {}).setdefault(key, []).append(given)
        records.end()
        for start, by_key in by_start.items():
            for key, values in by_key.items():
                self._table.extend(key, values, start)

    def add_one(self, start: int, key: Any, value: Any) -> None:
        self._table.extend(key, (value,), start)

    def get(self, start: int) -> Iterable[tuple[Any, Sequence[Any]]]:
        for key, values in self._table.space(start).items():
            yield key, list(values)

    def get_for_key(self, start: int, key: Any) -> Sequence[Any]:
        return list(self._table.get(key, start))

    def keys(self, start: int) -> Iterable[Any]:
        return iter(self._table.space(start))

    def drop(self, start: int) -> None:
        self._table.drop(start)


def _by_pane(panes: Iterable[int], keys: Iterable[Any], values: Iterable[Any]) -> dict[int, dict[Any, Any]]:
    found: dict[int, dict[Any, Any]] = {}
    for pane, key, value in zip(panes, keys, values, strict=True):
        found.setdefault(pane, {})[key] = value
    return found
