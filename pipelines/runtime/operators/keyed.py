"""The common parts of operators on a keyed stream: a state backend, and the keys of the records of a batch.

Names of an operator's own tables begin with `~`, so that no state of a user's function has the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter, itemgetter, ne
from typing import Any

from ...graph.key_groups import NAN_KEY, UnstableKey, key_groups_of_subtask
from ...types import ClassOf, RecordType, TupleOf
from ..state_backend.keyed_state_backend import KeyedStateBackend
from ..state_backend.state_handles import KeyedStateAccess
from ..state_backend.stateful import Origin
from .operator import Operator, OperatorSetup
from .user_functions import OrderedCalls, close_function, open_function, user_code


class KeyedOperator(Operator):
    """An operator that keeps its state in a backend."""

    def __init__(self, setup: OperatorSetup) -> None:
        self._setup = setup
        self._config = setup.config
        context = setup.context
        own = key_groups_of_subtask(context.subtask_index, context.max_parallelism, context.parallelism)
        self.backend = KeyedStateBackend(
            setup.record_type_parameter("key_type"),
            context.max_parallelism,
            own,
            setup.config.name,
            setup.open_store(setup.config.operator_id, context.max_parallelism),
            wall_clock=setup.wall_clock,
        )

    def take_changes(self) -> Iterable[bytes]:
        return self.backend.take_changes()

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        return self.backend.full(sections)

    def restore_from(self, origin: Origin | None) -> None:
        self.backend.restore_from(origin)

    def begin_time_anew(self) -> None:
        self.backend.begin_time_anew()

    def restore(self, message: bytes) -> None:
        self.backend.restore(message)


class KeyedFunctionOperator(KeyedOperator):
    """A keyed operator that calls one function of the user's, which may have keyed state."""

    _function: Any

    def open(self) -> None:
        self._setup.context.state_backend = KeyedStateAccess(self.backend)
        with user_code(self._config):
            open_function(self._function, self._setup.context)

    def close(self) -> None:
        with user_code(self._config):
            close_function(self._function)


class KeySelector:
    """Finds the keys of records: by the selector, or in the column that the key is."""

    def __init__(self, selector: Callable[[Any], Any], record_type: RecordType, field: str | None) -> None:
        names = [name for name, _ in record_type.columns()]
        self.column = names.index(field) if field is not None and field in names else None
        """The column of the record type; None if the key is not a column."""
        self._record_type = record_type
        self._select = selector
        if self.column is not None:
            self._select = getter(record_type, names[self.column]) or selector

    def select(self, records: OrderedCalls) -> Sequence[Any]:
        """Returns the key of each record, and stores it with the records. Raises any error of the selector, and
        UnstableKey if a key is NaN."""
        records.keys = keys = list(map(self._select, records))
        if _has_nan(keys):
            for key, _ in zip(keys, records, strict=True):  # the error names the record that was taken last
                if _has_nan([key]):
                    raise UnstableKey(NAN_KEY)
        return keys

    def select_columns(self, columns: Sequence[Any]) -> list[Any]:
        """Returns the keys of records in these columns, if the key is one column."""
        assert self.column is not None
        _, of = self._record_type.columns()[self.column]
        return of.decode(columns[self.column])


def _has_nan(keys: Sequence[Any]) -> bool:
    """Whether a key, or an item of a key, does not equal itself: no state would be found by it."""
    if any(map(ne, keys, keys)):
        return True
    items = [item for key in keys if type(key) is tuple for item in key]
    return bool(items) and _has_nan(items)


def getter(record_type: RecordType, name: str) -> Callable[[Any], Any] | None:
    """Returns a function that takes the field of a column out of a record, without Python code; None if a record has
    no fields."""
    match record_type:
        case TupleOf():
            return itemgetter([column for column, _ in record_type.columns()].index(name))
        case ClassOf(form="named_tuple"):
            return itemgetter([column for column, _ in record_type.columns()].index(name))
        case ClassOf():
            return attrgetter(name)
        case _:
            return None
