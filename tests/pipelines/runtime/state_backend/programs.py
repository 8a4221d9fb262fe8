"""Random operations of a state backend: on so few keys, windows and times that they overlap, and commits between
them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import strategies as st

from tailrace.pipelines.runtime.state_backend.broadcast_table import BroadcastTable
from tailrace.pipelines.runtime.state_backend.entry_store import HEAP, EntryStore
from tailrace.pipelines.runtime.state_backend.keyed_state_backend import KeyedStateBackend
from tailrace.pipelines.runtime.state_backend.list_table import ListTable
from tailrace.pipelines.runtime.state_backend.map_table import MapTable
from tailrace.pipelines.runtime.state_backend.value_table import ValueTable
from tailrace.pipelines.types import PICKLED, Types

PAIR = Types.TUPLE([str, int])
KEYS = ("a", "ключ", "d", "f")
"""Of key groups 3, 1, 4 and 6 of 8: of different subtasks at every parallelism above 1."""

Step = Callable[[KeyedStateBackend], Any]
Deed = Callable[[KeyedStateBackend, str, int, list[int]], Any]


def backend(
    max_parallelism: int = 128,
    key_groups: range | None = None,
    tables: Iterable[str] | None = None,
    store: EntryStore = HEAP,
) -> KeyedStateBackend:
    """Returns a backend with a table of each kind, or with these."""
    made = KeyedStateBackend(Types.STRING(), max_parallelism, key_groups, store=store)
    for name in TABLES if tables is None else tables:
        TABLES[name](made)
    return made


def value(b: KeyedStateBackend) -> ValueTable:
    return b.value_table("value", Types.LONG())


def windows(b: KeyedStateBackend) -> ValueTable:
    return b.value_table("windows", PAIR, namespaced=True)


def numbers(b: KeyedStateBackend) -> ListTable:
    return b.list_table("list", Types.LONG())


def window_lists(b: KeyedStateBackend) -> ListTable:
    return b.list_table("window-lists", PICKLED, namespaced=True)


def mapped(b: KeyedStateBackend) -> MapTable:
    return b.map_table("map", Types.LONG(), Types.STRING())


def broadcast(b: KeyedStateBackend) -> BroadcastTable:
    return b.broadcast_table("broadcast", Types.LONG(), Types.STRING())


TABLES: dict[str, Callable[[KeyedStateBackend], Any]] = {
    "value": value,
    "windows": windows,
    "list": numbers,
    "window-lists": window_lists,
    "map": mapped,
    "timers": lambda b: b.timer_table("timers"),
    "broadcast": broadcast,
}


def remove_item(b: KeyedStateBackend, key: str, item: int) -> None:
    if item in mapped(b).get(key):
        mapped(b).remove(key, item)


# By table: what can be done to it, with a key, a small number (item, window, time) and some numbers.
DEEDS: dict[str, list[Deed]] = {
    "value": [
        lambda b, key, n, some: value(b).put(key, len(some)),
        lambda b, key, n, some: value(b).remove(key),
    ],
    "windows": [
        lambda b, key, n, some: windows(b).put(key, (key, len(some)), n),
        lambda b, key, n, some: windows(b).drop(n),
    ],
    "list": [
        lambda b, key, n, some: numbers(b).extend(key, some),
        lambda b, key, n, some: numbers(b).replace(key, some),
    ],
    "window-lists": [
        lambda b, key, n, some: window_lists(b).extend(key, some, n),
        lambda b, key, n, some: window_lists(b).drop(n),
    ],
    "map": [
        lambda b, key, n, some: mapped(b).put(key, n, str(some)),
        lambda b, key, n, some: remove_item(b, key, n),
        lambda b, key, n, some: mapped(b).clear(key),
    ],
    "timers": [
        lambda b, key, n, some: b.timer_table("timers").register(key, n),
        lambda b, key, n, some: b.timer_table("timers").delete(key, n),
        lambda b, key, n, some: b.timer_table("timers").pop_due(n),
        lambda b, key, n, some: b.timer_table("timers").clear(),
    ],
    "times": [
        lambda b, key, n, some: setattr(b, "watermark", n),
        lambda b, key, n, some: setattr(b, "clock", n),
    ],
}
# What every subtask does alike.
BROADCAST: list[Deed] = [
    lambda b, key, n, some: broadcast(b).put_item(n, str(some)),
    lambda b, key, n, some: n in broadcast(b).items() and broadcast(b).remove_item(n),
    lambda b, key, n, some: broadcast(b).remove_all(),
]
ALL = [deed for deeds in DEEDS.values() for deed in deeds]


def deeds_of(deeds: list[Deed], least: int = 0) -> st.SearchStrategy[list[tuple[str, Step] | None]]:
    """Draws steps with the key of each, and commits (None); together at least this many."""
    step = st.builds(
        lambda deed, key, n, some: (key, lambda b: deed(b, key, n, some)),
        st.sampled_from(deeds), st.sampled_from(KEYS), st.integers(0, 2),
        st.lists(st.integers(0, 9), max_size=3),
    )  # fmt: skip
    return st.lists(st.one_of(step, step, st.none()), min_size=least, max_size=30)


def programs(deeds: list[Deed]) -> st.SearchStrategy[list[Step | None]]:
    """Draws the steps, and commits (None)."""
    return deeds_of(deeds).map(lambda some: [None if pair is None else pair[1] for pair in some])


def in_order(state: Any) -> Any:
    """Converts dictionaries to lists, so that a different iteration order is a difference."""
    return [(key, in_order(held)) for key, held in state.items()] if isinstance(state, dict) else state
