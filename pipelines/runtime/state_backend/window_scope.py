"""The states of windows: tables of a keyed backend by key and window, with names of their own."""

from __future__ import annotations

from typing import Any, Protocol

from ...functions import StateTtlConfig
from ...functions.context import KeyedStateStore
from ...functions.state import StateDescriptor
from ...functions.window import TimeWindow
from ...types import RecordType
from .keyed_state_backend import KeyedStateBackend
from .list_table import ListTable
from .map_table import MapTable
from .timers import TimerTable
from .value_table import ValueTable
from .window_key import WindowKey, window_key_type


class WindowScope:
    """Creates tables by key and window. Set `current_key` before a state object of it is used."""

    def __init__(self, backend: KeyedStateBackend, key_type: RecordType, prefix: str) -> None:
        """`prefix`: the begin of the names of the tables."""
        self._backend = backend
        self._key_type = window_key_type(key_type)
        self._prefix = prefix
        self.current_key: Any = None

    def set_window(self, key: Any, window: TimeWindow) -> WindowKey:
        """Sets the current key, and returns it."""
        self.current_key = made = WindowKey(key, window.start, window.end)
        return made

    @property
    def access_time(self) -> int | None:
        """The processing time of all accesses in one call of a function (ms)."""
        return self._backend.access_time

    def read_access_time(self) -> int:
        """Returns the processing time of the present call of a function (ms)."""
        return self._backend.read_access_time()

    def value_table(
        self, name: str, value_type: RecordType, *, kind: str = "value", ttl: StateTtlConfig | None = None
    ) -> ValueTable:
        """Returns the table of that name. Raises ValueError if it exists in another form."""
        name = self._prefix + name
        return self._backend.value_table(name, value_type, kind=kind, ttl=ttl, key_type=self._key_type)

    def list_table(
        self, name: str, element_type: RecordType, *, ttl: StateTtlConfig | None = None
    ) -> ListTable:
        """Returns the table of that name. Raises ValueError if it exists in another form."""
        return self._backend.list_table(self._prefix + name, element_type, ttl=ttl, key_type=self._key_type)

    def map_table(
        self, name: str, item_type: RecordType, value_type: RecordType, *, ttl: StateTtlConfig | None = None
    ) -> MapTable:
        """Returns the table of that name. Raises ValueError if it exists in another form."""
        name = self._prefix + name
        return self._backend.map_table(name, item_type, value_type, ttl=ttl, key_type=self._key_type)

    def timer_table(self, name: str) -> TimerTable:
        """Returns the table of that name. Raises ValueError if it exists in another form."""
        return self._backend.timer_table(self._prefix + name, key_type=self._key_type)


StateScope = KeyedStateBackend | WindowScope
"""What state objects read: the current key, and the time of accesses."""


class FindsState(Protocol):
    """Finds state objects by descriptor."""

    def find_state(self, descriptor: StateDescriptor) -> Any:
        """Returns the state. Raises ValueError if another form of state has the name, TypeError."""


class StateStore(KeyedStateStore):
    """The states that functions request at any time, and not only in `open`: each is looked up once."""

    def __init__(self, access: FindsState) -> None:
        self._access = access
        self._known: dict[str, tuple[StateDescriptor, Any]] = {}

    def find_state(self, descriptor: Any) -> Any:
        """Returns the state. Raises ValueError if another form of state has the name, TypeError."""
        known = self._known.get(descriptor.name)
        if known is None or (known[0] is not descriptor and known[0] != descriptor):
            known = self._known[descriptor.name] = descriptor, self._access.find_state(descriptor)
        return known[1]

    def get_state(self, descriptor: Any) -> Any:
        return self.find_state(descriptor)

    def get_list_state(self, descriptor: Any) -> Any:
        return self.find_state(descriptor)

    def get_map_state(self, descriptor: Any) -> Any:
        return self.find_state(descriptor)

    def get_reducing_state(self, descriptor: Any) -> Any:
        return self.find_state(descriptor)

    def get_aggregating_state(self, descriptor: Any) -> Any:
        return self.find_state(descriptor)
