"""State that was written as another form of its type: what can be read is read by name, all else is refused by name.

Random types are changed at random. What each value means in the new type is said by `meaning`, which shares no code
with the state backend.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tailrace.pipelines.runtime.common.failures import StateTypeError
from tailrace.pipelines.runtime.state_backend.keyed_state_backend import KeyedStateBackend
from tailrace.pipelines.types import RecordType

EXAMPLES = int(os.environ.get("EXAMPLES", "100"))
SCALARS: Final[dict[str, type]] = {"str": str, "int": int, "float": float, "bool": bool}
NOTHING: Final = object()
KEYS: Final = ("a", "b", "c")


@dataclass(frozen=True)
class Of:
    """A type. `kind`: of a scalar, or optional, list, class."""

    kind: str
    item: Of | None = None
    fields: tuple[tuple[str, Of, Any], ...] = ()
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


class Refused(Exception):
    """The one type cannot be read as the other."""


def meaning(was: Of, now: Of, value: Any) -> Any:
    """What a value (a dictionary for an object) of the old type is in the new one."""
    match was.kind, now.kind:
        case one, other if one == other and one in SCALARS:
            return value
        case "int", "float":
            return float(value)
        case "optional", "optional":
            assert was.item is not None
            assert now.item is not None
            return None if value is None else meaning(was.item, now.item, value)
        case one, "optional" if one != "optional":
            assert now.item is not None
            return meaning(was, now.item, value)
        case "list", "list":
            assert was.item is not None
            assert now.item is not None
            return [meaning(was.item, now.item, each) for each in value]
        case "class", "class" if was.name == now.name:
            before = {name: of for name, of, _ in was.fields}
            found = {}
            for name, of, default in now.fields:
                if name in before:
                    found[name] = meaning(before[name], of, value[name])
                elif default is NOTHING:
                    raise Refused
                else:
                    found[name] = default
            return found
    raise Refused


def examples(of: Of) -> Any:
    """A value of each part of a type, so that `meaning` looks at all of it."""
    match of.kind:
        case "optional":
            assert of.item is not None
            return examples(of.item)
        case "list":
            assert of.item is not None
            return [examples(of.item)]
        case "class":
            return {name: examples(each) for name, each, _ in of.fields}
        case kind:
            return {"str": "s", "int": 1, "float": 0.5, "bool": True}[kind]


scalars = st.sampled_from(sorted(SCALARS)).map(Of)


@st.composite
def classes(draw: st.DrawFn, inner: st.SearchStrategy[Of]) -> Of:
    types = draw(st.lists(inner, min_size=1, max_size=3))
    return Of("class", fields=tuple((f"f{i}", of, NOTHING) for i, of in enumerate(types)), name="Made")


types = st.recursive(
    scalars,
    lambda inner: st.one_of(
        inner.filter(lambda of: of.kind != "optional").map(lambda item: Of("optional", item)),
        inner.map(lambda item: Of("list", item)),
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
def changed(draw: st.DrawFn, of: Of, most: int = 3) -> Of:
    """The type behind some changes, at random places."""
    for _ in range(draw(st.sampled_from([0, 1, 1, *range(1, most)]))):
        of = draw(_changed_once(of))
    return of


@st.composite
def _changed_once(draw: st.DrawFn, of: Of) -> Of:
    deeper = of.kind in ("optional", "list") and draw(st.integers(0, 3)) > 0
    if deeper:
        assert of.item is not None
        item = draw(_changed_once(of.item))
        return of if item.kind == "optional" and of.kind == "optional" else dataclasses.replace(of, item=item)
    if of.kind == "class" and draw(st.integers(0, 9)) > 0:
        return draw(_changed_class(of))
    how = draw(st.sampled_from(["widen", "optional", "wrap", "other"]))
    if how == "widen":
        return Of("float") if of.kind == "int" else of
    if how == "optional":
        return of if of.kind == "optional" else Of("optional", of)
    return Of("list", of) if how == "wrap" else draw(scalars)


@st.composite
def _changed_class(draw: st.DrawFn, of: Of) -> Of:
    fields = list(of.fields)
    at = draw(st.integers(0, len(fields) - 1))
    match draw(st.sampled_from(["swap", "add", "add", "require", "remove", "inside", "inside", "rename"])):
        case "swap":
            fields.reverse()
        case "add":
            kind = draw(scalars | st.just(Of("optional", Of("int"))) | st.just(Of("list", Of("str"))))
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


def _has(of: Of, default: Any) -> bool:
    return DEFAULTS.get(of.kind, NOTHING) == default and type(DEFAULTS[of.kind]) is type(default)


def values(of: Of) -> st.SearchStrategy[Any]:
    match of.kind:
        case "optional":
            assert of.item is not None
            return st.none() | values(of.item)
        case "list":
            assert of.item is not None
            return st.lists(values(of.item), max_size=2)
        case "class":
            return st.fixed_dictionaries({name: values(each) for name, each, _ in of.fields})
        case kind:
            return {
                "str": st.text("abé", max_size=3),
                "int": st.integers(-(2**40), 2**40),
                "float": st.sampled_from([0.5, -1.0, 1e300]),
                "bool": st.booleans(),
            }[kind]


def made(of: Of, hint: Any, value: Any) -> Any:
    """The object of a dictionary."""
    match of.kind:
        case "optional":
            assert of.item is not None
            return None if value is None else made(of.item, RecordType.of(hint).item, value)  # type: ignore[attr-defined]
        case "list":
            assert of.item is not None
            item = RecordType.of(hint).item  # type: ignore[attr-defined]
            return [made(of.item, item, each) for each in value]
        case "class":
            record_type = RecordType.of(hint)
            own = dict(record_type.columns())
            parts = {name: made(each, own[name], value[name]) for name, each, _ in of.fields}
            return record_type.cls(**parts)  # type: ignore[attr-defined]
        case _:
            return value


def shown(value: Any) -> Any:
    """Objects as dictionaries again, with types that can be told apart."""
    match value:
        case dict():
            return {key: shown(each) for key, each in value.items()}
        case list():
            return list(map(shown, value))
        case _ if dataclasses.is_dataclass(value):
            return {f.name: shown(getattr(value, f.name)) for f in dataclasses.fields(value)}
        case _:
            return f"{type(value).__name__} {value!r}"


class State:
    """A table of each kind, of values of one type; filled with values."""

    def __init__(
        self, hint: Any, key: Any = str, item: Any = str, backend: KeyedStateBackend | None = None
    ) -> None:
        self.backend = backend or KeyedStateBackend(RecordType.of(key), 128, operator="Count")
        of = RecordType.of(hint)
        self.value = self.backend.value_table("value", of)
        self.windows = self.backend.value_table("windows", of, namespaced=True)
        self.list = self.backend.list_table("list", of)
        self.map = self.backend.map_table("map", RecordType.of(item), of)
        self.timers = self.backend.timer_table("timers")

    def put(self, key: str, value: Any) -> None:
        self.value.put(key, value)
        self.windows.put(key, value, 5)
        self.list.extend(key, [value])
        self.map.put(key, "item", value)
        self.timers.register(key, 10)

    def shown(self) -> Any:
        tables = self.backend.snapshot()
        return {name: shown(tables[name]) for name in ("value", "windows", "list", "map")}


How = Literal["changes", "full", "waiting"]


def written(state: State, how: How) -> list[bytes]:
    """All of the state as messages: the changes, all of it at once, or that from one who asked for nothing."""
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
@given(st.data(), both, st.sampled_from(["changes", "full", "waiting"]))
def test_state_is_read_as_what_it_means_in_the_changed_type_or_refused(
    data: st.DataObject, was: Of, how: How
) -> None:
    now = data.draw(changed(was))
    old, hint = was.hint(), now.hint()
    lived = State(old)
    given_values = data.draw(st.lists(values(was), min_size=1, max_size=3))
    for key, value in zip(KEYS, given_values, strict=False):
        lived.put(key, made(was, old, value))
    messages = written(lived, how)
    try:
        meaning(was, now, examples(was))
    except Refused:
        event("refused")
        with pytest.raises(
            StateTypeError, match=r"of operator 'Count' was written as a .* and is declared as a "
        ):
            _restored(hint, messages)
        return
    event("same" if was == now else "converted")
    right = {key: meaning(was, now, value) for key, value in zip(KEYS, given_values, strict=False)}
    again = _restored(hint, messages)
    assert again.shown() == _state_of(right)
    # What follows is of the new type; both are read together, in changes and at once.
    more = data.draw(values(now))
    again.put("a", made(now, hint, more))
    following = again.backend.take_changes()
    expected = again.shown()
    assert _restored(hint, [*messages, *following]).shown() == expected
    assert _restored(hint, written(again, "full")).shown() == expected


def _restored(hint: Any, messages: list[bytes]) -> State:
    backend = KeyedStateBackend(RecordType.of(str), 128, operator="Count")
    half = len(messages) // 2
    for message in messages[:half]:
        backend.restore(message)
    state = State(hint, backend=backend)
    for message in messages[half:]:
        backend.restore(message)
    return state


def _state_of(values: dict[str, Any]) -> Any:
    values = {key: shown(value) for key, value in values.items()}
    return {
        "value": values,
        "windows": {5: values} if values else {},
        "list": {key: [value] for key, value in values.items()},
        "map": {key: {"item": value} for key, value in values.items()},
    }


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: State(int, key=bytes), "the type of its keys has changed"),
        (lambda: State(int, key=str | None), "the type of its keys has changed"),
        (lambda: State(int, item=bytes), "the type of the keys of its map has changed"),
    ],
)
def test_other_keys_are_refused(make: Callable[[], State], why: str) -> None:
    lived = State(int)
    lived.put("a", 1)
    state = make()
    messages = lived.backend.take_changes()
    with pytest.raises(StateTypeError, match=why):
        list(map(state.backend.restore, messages))


def test_an_int_that_is_no_float_is_refused() -> None:
    lived = State(int)
    lived.put("a", 2**53 + 1)
    with pytest.raises(StateTypeError, match="has an int that is no exact float"):
        _restored(float, lived.backend.take_changes())
