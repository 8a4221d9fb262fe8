"""Functions made of functions: they behave like them, are opened and closed with them, and can be pickled."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tailrace.pipelines.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    ProcessAllWindowFunction,
    RuntimeContext,
)
from tailrace.pipelines.functions.adapters import (
    AllWindow,
    Field,
    KeyedCoFlatMap,
    KeyedCoMap,
    KeyedFilter,
    KeyedFlatMap,
    KeyedMap,
    TwoFlatMaps,
    TwoMaps,
    WindowCall,
    may_have_state,
    no_key,
)

NOBODY: Any = None


class Watched:
    """Counts how often it is opened and closed."""

    def __init__(self) -> None:
        self.opened: list[RuntimeContext] = []
        self.closed = 0

    def open(self, context: RuntimeContext) -> None:
        self.opened.append(context)

    def close(self) -> None:
        self.closed += 1


class Double(Watched, MapFunction[int, int]):
    def map(self, value: int) -> int:
        return value * 2


class Twice(Watched, FlatMapFunction[int, int]):
    def flat_map(self, value: int) -> Iterable[int]:
        return [value, value]


class Even(Watched, FilterFunction[int]):
    def filter(self, value: int) -> bool:
        return value % 2 == 0


class AddOne(Watched):
    def __call__(self, value: int) -> int:
        return value + 1


class Signs(Watched, CoMapFunction[int, int, int]):
    def map1(self, value: int) -> int:
        return value

    def map2(self, value: int) -> int:
        return -value


class Ranges(Watched, CoFlatMapFunction[int, int, int]):
    def flat_map1(self, value: int) -> Iterable[int]:
        return range(value)

    def flat_map2(self, value: int) -> Iterable[int]:
        return []


class Sizes(Watched, ProcessAllWindowFunction[int, int]):
    def process(self, context: Any, elements: Iterable[int]) -> Iterable[int]:
        return [sum(elements)]


def both(co: Any, value: int) -> list[list[int]]:
    return [list(co.process_element1(value, NOBODY)), list(co.process_element2(value, NOBODY))]


ADAPTERS: dict[str, tuple[Any, Callable[[Any], Any], Any]] = {
    "map": (KeyedMap(Double()), lambda f: f.process_element(4, NOBODY), (8,)),
    "map by callable": (KeyedMap(AddOne()), lambda f: f.process_element(4, NOBODY), (5,)),
    "flat_map": (KeyedFlatMap(Twice()), lambda f: f.process_element(4, NOBODY), [4, 4]),
    "filter": (KeyedFilter(Even()), lambda f: [*map(f.process_element, (3, 4), [NOBODY] * 2)], [(), (4,)]),
    "co-map": (KeyedCoMap(Signs()), lambda f: both(f, 3), [[3], [-3]]),
    "co-flat_map": (KeyedCoFlatMap(Ranges()), lambda f: both(f, 2), [[0, 1], []]),
    "two maps": (TwoMaps(Double(), AddOne()), lambda f: (f.map1(3), f.map2(3)), (6, 4)),
    "two flat_maps": (
        TwoFlatMaps(Twice(), range),
        lambda f: (f.flat_map1(1), f.flat_map2(0)),
        ([1, 1], range(0)),
    ),
    "window": (
        WindowCall(lambda key, context, elements: [key, *elements]),
        lambda f: f.process("k", NOBODY, [1]),
        ["k", 1],
    ),
    "all windows": (AllWindow(Sizes()), lambda f: f.process(0, NOBODY, [1, 2]), [3]),
}


@pytest.mark.parametrize(("adapter", "call", "expected"), ADAPTERS.values(), ids=list(ADAPTERS))
def test_adapter_behaves_like_its_function_also_in_other_process(
    adapter: Any, call: Callable[[Any], Any], expected: Any
) -> None:
    import cloudpickle

    assert call(adapter) == expected
    assert call(pickle.loads(cloudpickle.dumps(adapter))) == expected


@pytest.mark.parametrize("adapter", [row[0] for row in ADAPTERS.values()], ids=list(ADAPTERS))
def test_adapter_is_opened_and_closed_with_its_functions(adapter: Any) -> None:
    adapter.open(NOBODY)
    adapter.close()
    watched = [part for part in adapter.parts if isinstance(part, Watched)]
    assert all((part.opened, part.closed) == ([NOBODY], 1) for part in watched)


def test_adapter_of_plain_functions_has_no_state() -> None:
    assert not may_have_state(TwoMaps(len, len))
    assert may_have_state(TwoMaps(len, AddOne()))
    assert may_have_state(Signs())


def test_field_is_read_from_object_or_dictionary() -> None:
    class Record:
        user = "u"

    assert Field("user")(Record()) == Field("user")({"user": "u"}) == "u"
    with pytest.raises(KeyError):
        Field("user")({})


def test_all_records_have_the_null_key() -> None:
    assert no_key("a") == no_key(1)
