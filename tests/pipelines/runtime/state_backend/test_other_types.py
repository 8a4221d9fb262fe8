"""State that was written with another form of its type: compatible parts are read by name, all else is rejected by
name.

Random types are changed at random. `meaning`, which shares no code with the state backend, computes the expected value
in the new type.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tailrace.pipelines.functions import ListStateDescriptor, StateTtlConfig
from tailrace.pipelines.runtime.common.failures import StateTypeError
from tailrace.pipelines.runtime.state_backend.entry_store import HEAP, EntryStore
from tailrace.pipelines.runtime.state_backend.keyed_state_backend import KeyedStateBackend
from tailrace.pipelines.runtime.state_backend.operator_state import OperatorState
from tailrace.pipelines.runtime.state_backend.rocksdb_database import RocksDatabase
from tailrace.pipelines.runtime.state_backend.rocksdb_store import open_store
from tailrace.pipelines.types import PICKLED, RecordType

EXAMPLES = int(os.environ.get("EXAMPLES", "30"))
SCALARS: Final[dict[str, type]] = {"str": str, "int": int, "float": float, "bool": bool}
NOTHING: Final = object()
KEYS: Final = ("a", "b", "c")
TTL: Final = StateTtlConfig.new_builder(timedelta(days=1)).build()
ACCESSED_AT: Final = 5


@dataclass(frozen=True)
class DrawnType:
    """A type. `kind`: of a scalar, or optional, list, class."""

    kind: str
    item: DrawnType | None = None
    fields: tuple[tuple[str, DrawnType, Any], ...] = ()
    """Name, type and default (NOTHING: none) of each field."""
    name: str = ""

    def hint(self) -> Any:
        match self.kind:
            case "optional":
                assert self.item is not None
                return self.item.hint() | None
            case "list":
                assert self.item is not None
                return list[self.item.hint()]  # type: ignore[misc]
            case "class":
                fields: list[Any] = [
                    (name, of.hint(), dataclasses.field() if default is NOTHING else _default(default))
                    for name, of, default in self.fields
                ]
                return dataclasses.make_dataclass(self.name, fields, kw_only=True)
            case _:
                return SCALARS[self.kind]


def _default(value: Any) -> Any:
    if isinstance(value, list):
        return dataclasses.field(default_factory=lambda: list(value))
    return dataclasses.field(default=value)


class Incompatible(Exception):
    """One type cannot be read as the other."""


def expected_value(was: DrawnType, now: DrawnType, value: Any) -> Any:
    """Returns a value (a dictionary for an object) of the old type as a value of the new one."""
    match was.kind, now.kind:
        case [one, other] if one == other and one in SCALARS:
            return value
        case ["int", "float"]:
            return float(value)
        case ["optional", "optional"]:
            assert was.item is not None
            assert now.item is not None
            return None if value is None else expected_value(was.item, now.item, value)
        case [one, "optional"] if one != "optional":
            assert now.item is not None
            return expected_value(was, now.item, value)
        case ["list", "list"]:
            assert was.item is not None
            assert now.item is not None
            return [expected_value(was.item, now.item, item) for item in value]
        case ["class", "class"] if was.name == now.name:
            before = {name: of for name, of, _ in was.fields}
            result = {}
            for name, of, default in now.fields:
                if name in before:
                    result[name] = expected_value(before[name], of, value[name])
                elif default is NOTHING:
                    raise Incompatible
                else:
                    result[name] = default
            return result
    raise Incompatible


def examples(of: DrawnType) -> Any:
    """Returns a value for each part of a type, so that `meaning` visits all of it."""
    match of.kind:
        case "optional":
            assert of.item is not None
            return examples(of.item)
        case "list":
            assert of.item is not None
            return [examples(of.item)]
        case "class":
            return {name: examples(drawn_type) for name, drawn_type, _ in of.fields}
        case kind:
            return {"str": "s", "int": 1, "float": 0.5, "bool": True}[kind]


scalars = st.sampled_from(sorted(SCALARS)).map(DrawnType)


@st.composite
def classes(draw: st.DrawFn, inner: st.SearchStrategy[DrawnType]) -> DrawnType:
    types = draw(st.lists(inner, min_size=1, max_size=3))
    return DrawnType("class", fields=tuple((f"f{i}", of, NOTHING) for i, of in enumerate(types)), name="Made")


types = st.recursive(
    scalars,
    lambda inner: st.one_of(
        inner.filter(lambda of: of.kind != "optional").map(lambda item: DrawnType("optional", item)),
        inner.map(lambda item: DrawnType("list", item)),
        classes(inner),
        classes(inner),
    ),
    max_leaves=6,
)
both = classes(types) | types
DEFAULTS: Final[dict[str, Any]] = {
    "str": "d",
    "int": 7,
    "float": 0.25,
    "bool": True,
    "optional": None,
    "list": [],
}


@st.composite
def changed(draw: st.DrawFn, of: DrawnType, most: int = 3) -> DrawnType:
    """Draws the type after some changes at random places."""
    for _ in range(draw(st.sampled_from([0, 1, 1, *range(1, most)]))):
        of = draw(_changed_once(of))
    return of


@st.composite
def _changed_once(draw: st.DrawFn, of: DrawnType) -> DrawnType:
    deeper = of.kind in ("optional", "list") and draw(st.integers(0, 3)) > 0
    if deeper:
        assert of.item is not None
        item = draw(_changed_once(of.item))
        return of if item.kind == "optional" and of.kind == "optional" else dataclasses.replace(of, item=item)
    if of.kind == "class" and draw(st.integers(0, 9)) > 0:
        return draw(_changed_class(of))
    how = draw(st.sampled_from(["widen", "optional", "wrap", "other"]))
    if how == "widen":
        return DrawnType("float") if of.kind == "int" else of
    if how == "optional":
        return of if of.kind == "optional" else DrawnType("optional", of)
    return DrawnType("list", of) if how == "wrap" else draw(scalars)


@st.composite
def _changed_class(draw: st.DrawFn, of: DrawnType) -> DrawnType:
    fields = list(of.fields)
    at = draw(st.integers(0, len(fields) - 1))
    match draw(st.sampled_from(["swap", "add", "add", "require", "remove", "inside", "inside", "rename"])):
        case "swap":
            fields.reverse()
        case "add":
            kind = draw(
                scalars
                | st.just(DrawnType("optional", DrawnType("int")))
                | st.just(DrawnType("list", DrawnType("str")))
            )
            fields.insert(at, (f"n{len(fields)}", kind, DEFAULTS[kind.kind]))
        case "require":
            fields.insert(at, (f"r{len(fields)}", draw(scalars), NOTHING))
        case "remove":
            del fields[at]
        case "inside":
            name, inner, default = fields[at]
            fields[at] = (name, draw(_changed_once(inner)), default)
        case "rename":
            return dataclasses.replace(of, name="Other")
    names = [name for name, *_ in fields]
    if not fields or len(set(names)) < len(names):
        return of
    # A default that its field's changed type does not fit is another matter.
    plain = tuple(
        (name, inner, d if d is NOTHING or _has(inner, d) else NOTHING) for name, inner, d in fields
    )
    return dataclasses.replace(of, fields=plain)


def _has(of: DrawnType, default: Any) -> bool:
    return DEFAULTS.get(of.kind, NOTHING) == default and type(DEFAULTS[of.kind]) is type(default)


def values(of: DrawnType) -> st.SearchStrategy[Any]:
    match of.kind:
        case "optional":
            assert of.item is not None
            return st.none() | values(of.item)
        case "list":
            assert of.item is not None
            return st.lists(values(of.item), max_size=2)
        case "class":
            return st.fixed_dictionaries({name: values(drawn_type) for name, drawn_type, _ in of.fields})
        case kind:
            return {
                "str": st.text("abé", max_size=3),
                "int": st.integers(-(2**40), 2**40),
                "float": st.sampled_from([0.5, -1.0, 1e300]),
                "bool": st.booleans(),
            }[kind]


def made(of: DrawnType, hint: Any, value: Any) -> Any:
    """Returns the object of a dictionary."""
    match of.kind:
        case "optional":
            assert of.item is not None
            return None if value is None else made(of.item, RecordType.of(hint).item, value)  # type: ignore[attr-defined]
        case "list":
            assert of.item is not None
            item = RecordType.of(hint).item  # type: ignore[attr-defined]
            return [made(of.item, item, element) for element in value]
        case "class":
            record_type = RecordType.of(hint)
            own = dict(record_type.columns())
            parts = {name: made(drawn_type, own[name], value[name]) for name, drawn_type, _ in of.fields}
            return record_type.cls(**parts)  # type: ignore[attr-defined]
        case _:
            return value


def shown(value: Any) -> Any:
    """Returns objects as dictionaries with distinguishable types."""
    match value:
        case dict():
            return {key: shown(item) for key, item in value.items()}
        case list():
            return list(map(shown, value))
        case (at, item):
            assert at == ACCESSED_AT
            return "accessed", shown(item)
        case _ if dataclasses.is_dataclass(value):
            return {f.name: shown(getattr(value, f.name)) for f in dataclasses.fields(value)}
        case _:
            return f"{type(value).__name__} {value!r}"


class State:
    """A table of each kind, of values of one type; filled with values."""

    def __init__(
        self,
        hint: Any,
        key: Any = str,
        item: Any = str,
        backend: KeyedStateBackend | None = None,
        expires: bool = True,
    ) -> None:
        """`expires`: whether the expiring tables have a time to live."""
        self.backend = backend or KeyedStateBackend(RecordType.of(key), 128, operator="Count")
        self.expires = expires
        ttl = TTL if expires else None
        of = RecordType.of(hint)
        self.value = self.backend.value_table("value", of)
        self.windows = self.backend.value_table("windows", of, namespaced=True)
        self.reduced = self.backend.value_table("reduced", of, kind="reduction")
        self.list = self.backend.list_table("list", of)
        self.map = self.backend.map_table("map", RecordType.of(item), of)
        self.expiring = (
            self.backend.value_table("expiring", of, ttl=ttl),
            self.backend.list_table("expiring list", of, ttl=ttl),
            self.backend.map_table("expiring map", RecordType.of(item), of, ttl=ttl),
        )
        self.timers = self.backend.timer_table("timers")
        self.broadcast = self.backend.broadcast_table("broadcast", RecordType.of(item), of)

    def put(self, key: str, value: Any) -> None:
        self.value.put(key, value)
        self.windows.put(key, value, 5)
        self.reduced.put(key, value)
        self.list.extend(key, [value])
        self.map.put(key, "item", value)
        stamped, elements, items = self.expiring
        held = (ACCESSED_AT, value) if self.expires else value
        stamped.put(key, held)
        elements.extend(key, [held])
        items.put(key, "item", held)
        self.timers.register(key, 10)
        self.broadcast.put_item(key, value)

    def shown(self) -> Any:
        tables = self.backend.snapshot()
        return {name: shown(table) for name, table in tables.items() if name not in ("timers", "~times")}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocksDatabase]:
    made = RocksDatabase(tmp_path_factory.mktemp("state") / "database", 0)
    made._generation_bytes = 0
    yield made
    made.close()


How = Literal["changes", "full", "waiting"]


def written(state: State, how: How) -> list[bytes]:
    """Returns all of the state as messages: changes, a full snapshot, or a snapshot of a program that declares
    nothing."""
    messages = state.backend.take_changes()
    if how == "changes":
        return messages
    if how == "waiting":
        other = KeyedStateBackend(RecordType.of(str), 128)
        for message in messages:
            other.restore(message)
        return [message for _, message in other.full([range(128)])]
    return [message for _, message in state.backend.full([range(128)])]


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    st.data(),
    both,
    st.sampled_from(["changes", "full", "waiting"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_state_is_converted_to_changed_type_or_rejected(
    database: RocksDatabase,
    data: st.DataObject,
    was: DrawnType,
    how: How,
    expired: bool,
    expires: bool,
    on_disk: bool,
) -> None:
    """In memory and on disk; a time to live may come or go, too."""
    now = data.draw(changed(was))
    old, hint = was.hint(), now.hint()
    lived = State(old, expires=expired)
    store = open_store(database, "o", 128) if on_disk else HEAP
    given_values = data.draw(st.lists(values(was), min_size=1, max_size=3))
    for key, value in zip(KEYS, given_values, strict=False):
        lived.put(key, made(was, old, value))
    messages = written(lived, how)
    try:
        expected_value(was, now, examples(was))
    except Incompatible:
        event("refused")
        with pytest.raises(
            StateTypeError, match=r"of operator 'Count' was written as a .* and is declared as a "
        ):
            _restored(hint, messages, expires, store)
        return
    event("same" if was == now else "converted")
    right = {key: expected_value(was, now, value) for key, value in zip(KEYS, given_values, strict=False)}
    again = _restored(hint, messages, expires, store)
    assert again.shown() == _state_of(right, expires)
    # What follows is of the new type; both are read together, in changes and at once.
    more = data.draw(values(now))
    again.put("a", made(now, hint, more))
    following = again.backend.take_changes()
    expected = again.shown()
    assert _restored(hint, [*messages, *following], expires).shown() == expected
    assert _restored(hint, written(again, "full"), expires).shown() == expected


def _restored(hint: Any, messages: list[bytes], expires: bool = True, store: EntryStore = HEAP) -> State:
    backend = KeyedStateBackend(
        RecordType.of(str), 128, operator="Count", store=store, wall_clock=lambda: ACCESSED_AT
    )
    half = len(messages) // 2
    for message in messages[:half]:
        backend.restore(message)
    state = State(hint, backend=backend, expires=expires)
    for message in messages[half:]:
        backend.restore(message)
    return state


def _state_of(values: dict[str, Any], expires: bool) -> Any:
    values = {key: shown(value) for key, value in values.items()}
    held = {key: ("accessed", value) if expires else value for key, value in values.items()}
    return {
        "value": values,
        "windows": {5: values} if values else {},
        "reduced": values,
        "list": {key: [value] for key, value in values.items()},
        "map": {key: {"item": value} for key, value in values.items()},
        "expiring": held,
        "expiring list": {key: [value] for key, value in held.items()},
        "expiring map": {key: {"item": value} for key, value in held.items()},
        "~broadcast:broadcast": {0: values} if values else {},
    }


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.filter_too_much])
@given(st.data(), both, st.booleans(), st.booleans())
def test_operator_state_is_converted_to_changed_type_or_rejected(
    data: st.DataObject, was: DrawnType, is_union: bool, is_full: bool
) -> None:
    now = data.draw(changed(was))
    old, hint = was.hint(), now.hint()

    def request(state: OperatorState, of: Any) -> Any:
        descriptor = ListStateDescriptor("elements", of)
        return state.get_union_list_state(descriptor) if is_union else state.get_list_state(descriptor)

    lived = OperatorState(0, 1, "Count")
    given_values = data.draw(st.lists(values(was), min_size=1, max_size=3))
    request(lived, old).add_all([made(was, old, value) for value in given_values])
    messages = list(lived.take_changes())
    if is_full:
        messages = list(lived.full())
    again = OperatorState(0, 1, "Count")
    for message in messages:
        again.restore(message)
    try:
        expected_value(was, now, examples(was))
    except Incompatible:
        with pytest.raises(
            StateTypeError, match=r"of operator 'Count' was written as a .* and is declared as a "
        ):
            request(again, hint)
        return
    right = [shown(expected_value(was, now, value)) for value in given_values]
    assert [shown(value) for value in request(again, hint)] == right


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: State(int, key=bytes), "the type of its keys has changed"),
        (lambda: State(int, key=str | None), "the type of its keys has changed"),
        (lambda: State(int, item=bytes), "the type of the keys of its map has changed"),
    ],
)
def test_other_keys_are_rejected(make: Callable[[], State], why: str) -> None:
    lived = State(int)
    lived.put("a", 1)
    state = make()
    messages = lived.backend.take_changes()
    with pytest.raises(StateTypeError, match=why):
        list(map(state.backend.restore, messages))


def test_int_that_is_no_exact_float_is_rejected() -> None:
    lived = State(int)
    lived.put("a", 2**53 + 1)
    with pytest.raises(StateTypeError, match="has an int that no float represents exactly"):
        _restored(float, lived.backend.take_changes())


class ChangingKey:
    """A pickled key whose form follows its class, which may change between two runs of a program."""

    shift = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number + self.shift

    def __hash__(self) -> int:
        return hash(self.number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChangingKey) and other.number == self.number


@pytest.mark.parametrize("kind", ["value", "list", "map", "timer"])
def test_keys_of_changed_form_are_rejected(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """State of such keys would be read, and never be found again."""

    def backend() -> tuple[KeyedStateBackend, Any]:
        made = KeyedStateBackend(PICKLED, 128, operator="Count")
        match kind:
            case "value":
                return made, made.value_table("s", RecordType.of(int))
            case "list":
                return made, made.list_table("s", RecordType.of(int))
            case "map":
                return made, made.map_table("s", RecordType.of(str), RecordType.of(int))
            case _:
                return made, made.timer_table("s")

    written, table = backend()
    for number in range(20):
        key = ChangingKey(number)
        match kind:
            case "value":
                table.put(key, number)
            case "list":
                table.extend(key, [number])
            case "map":
                table.put(key, "item", number)
            case _:
                table.register(key, number)
    messages = written.take_changes()
    again, _ = backend()
    for message in messages:
        again.restore(message)
    assert again.snapshot()["s"] == written.snapshot()["s"]
    monkeypatch.setattr(ChangingKey, "shift", 1)
    changed, _ = backend()
    refusal = r"state 's' of operator 'Count'.*its keys now have another form"
    # The last message has the entries; a schema may come before it.
    *before, entries = messages
    for message in before:
        changed.restore(message)
    with pytest.raises(StateTypeError, match=refusal):
        changed.restore(entries)
