"""States of an earlier release are read by field name, with defaults and steps; what no step covers is refused."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map

from tailrace.services.snapshots.encoding import encode, state_decoder, state_types
from tailrace.services.snapshots.migration import MissingMigration, StateMigration
from tailrace.services.snapshots.migrations import Migration
from tailrace.services.snapshots.type_description import describe

TYPES: dict[str, tuple[Any, Any, st.SearchStrategy[Any]]] = {
    "int": (int, 0, st.integers(-100, 100)),
    "str": (str, "", st.text(max_size=3)),
    "optional": (int | None, None, st.none() | st.integers(0, 9)),
    "tuple": (tuple[str, ...], (), st.lists(st.text(max_size=2), max_size=2).map(tuple)),
    "map": (
        Map[int, str],
        Map(),
        st.dictionaries(st.integers(0, 9), st.text(max_size=2), max_size=3).map(Map),
    ),
    "mapping": (Mapping[str, int], {}, st.dictionaries(st.text(max_size=2), st.integers(0, 9), max_size=2)),
}
Field = tuple[str, str]
"""(name, key in TYPES)"""
FIELDS = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(sorted(TYPES)), max_size=5)


def struct(name: str, fields: Mapping[str, str], **more: tuple[Any, Any]) -> type[msgspec.Struct]:
    defined = [(field, TYPES[kind][0], default(TYPES[kind][1])) for field, kind in fields.items()]
    defined += [(field, kind, default(value)) for field, (kind, value) in more.items()]
    return msgspec.defstruct(name, defined, frozen=True, kw_only=True, module="tailrace.imaginary")


def default(value: Any) -> Any:
    return msgspec.field(default_factory=dict) if value == {} and isinstance(value, dict) else value


@functools.cache
def state_of(inner: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Returns a state that holds the struct in every way in which states hold structs."""
    kinds = {
        "one": (inner | None, None),
        "many": (tuple[inner, ...], ()),  # type: ignore[valid-type]
        "by_id": (Map[int, inner], Map()),  # type: ignore[valid-type]
        "nested": (Map[str, tuple[Map[int, inner], ...]], Map()),  # type: ignore[valid-type]
        "named": (Mapping[str, inner], {}),  # type: ignore[valid-type]
    }
    return struct("State", {}, **kinds)


def placed(state: type[msgspec.Struct], values: list[msgspec.Struct]) -> msgspec.Struct:
    return state(
        one=values[0],
        many=tuple(values),
        by_id=Map(enumerate(values)),
        nested=Map({"x": (Map({1: values[-1]}), Map())}),
        named={"n": values[0]},
    )


def values_of(kind: type[msgspec.Struct], fields: Mapping[str, str]) -> st.SearchStrategy[msgspec.Struct]:
    return st.builds(kind, **{name: TYPES[key][2] for name, key in fields.items()})


def migrated(
    state: msgspec.Struct, wanted: type[msgspec.Struct], steps: tuple[Migration, ...] = ()
) -> msgspec.Struct:
    """Reads a state, as a release with other types wrote it."""
    migration = StateMigration(describe({"kind": type(state)}), describe({"kind": wanted}), steps)
    read: msgspec.Struct = state_decoder(wanted).decode(migration.apply("kind", encode(state)))
    return read


@settings(max_examples=60, deadline=None)
@given(data=st.data(), old=FIELDS, new=FIELDS)
def test_added_and_removed_fields_need_no_step(
    data: st.DataObject, old: dict[str, str], new: dict[str, str]
) -> None:
    new = {name: old.get(name, kind) for name, kind in new.items()}
    before, after = struct("Inner", old), struct("Inner", new)
    values = data.draw(st.lists(values_of(before, old), min_size=1, max_size=3))
    kept = [after(**{name: getattr(value, name) for name in old.keys() & new.keys()}) for value in values]
    read = migrated(placed(state_of(before), values), state_of(after))
    assert read == placed(state_of(after), kept)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), fields=FIELDS.filter(len))
def test_renamed_field_is_read_by_its_step(data: st.DataObject, fields: dict[str, str]) -> None:
    name = data.draw(st.sampled_from(sorted(fields)))
    after_fields = {**fields, "renamed": fields[name]}
    del after_fields[name]
    before, after = struct("Inner", fields), struct("Inner", after_fields)
    values = data.draw(st.lists(values_of(before, fields), min_size=1, max_size=3))
    step = Migration("imaginary.Inner", {"renamed"}, lambda old: {**old, "renamed": old[name]})
    read = migrated(placed(state_of(before), values), state_of(after), (step,))
    renamed = [
        after(renamed=getattr(value, name), **{key: getattr(value, key) for key in fields if key != name})
        for value in values
    ]
    assert read == placed(state_of(after), renamed)


@settings(max_examples=60, deadline=None)
@given(value=st.integers(0, 3), before=st.integers(0, 3), after=st.integers(0, 3))
def test_field_with_other_default_keeps_its_value(value: int, before: int, after: int) -> None:
    """Fields with their default are not written."""
    old = struct("Inner", {}, number=(int, before))
    new = struct("Inner", {}, number=(int, after))
    read = migrated(placed(state_of(old), [old(number=value)]), state_of(new))
    assert read == placed(state_of(new), [new(number=value)])


def test_steps_follow_each_other() -> None:
    old, new = struct("Inner", {"a": "int"}), struct("Inner", {"c": "str"})
    steps = (
        Migration("imaginary.Inner", {"b"}, lambda fields: {"b": fields["a"] + 1}),
        Migration("imaginary.Inner", {"c"}, lambda fields: {"c": str(fields["b"])}),
    )
    assert migrated(placed(state_of(old), [old(a=1), old()]), state_of(new), steps) == placed(
        state_of(new), [new(c="2"), new(c="1")]
    )


class Few(StrEnum):
    A = "a"


class Many(StrEnum):
    A = "a"
    B = "b"


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "new field": ({}, {"needed": int}, r"imaginary\.Inner\.needed is new and has no default"),
    "other type": ({"a": int}, {"a": str}, r"imaginary\.Inner\.a was int, and is str"),
    "other items": (
        {"a": tuple[int, ...]},
        {"a": tuple[str, ...]},
        r"imaginary\.Inner\.a was int, and is str",
    ),
    "other container": ({"a": frozenset[int]}, {"a": tuple[int, ...]}, r"Inner\.a was frozenset\[int\]"),
    "no longer optional": ({"a": int | None}, {"a": int}, r"Inner\.a was None \| int, and is int"),
    "lost value": ({"a": Many}, {"a": Few}, r"Inner\.a may have a value that Few does not have any more: b"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_change_without_step_is_refused_by_name(case: str) -> None:
    old, new, message = REFUSED[case]
    before, after = (
        msgspec.defstruct("Inner", [*each.items()], module="tailrace.imaginary") for each in (old, new)
    )
    with pytest.raises(MissingMigration, match=message) as refused:
        StateMigration(describe({"kind": state_of(before)}), describe({"kind": state_of(after)}))
    assert "\n" not in str(refused.value)
    covered = Migration("imaginary.Inner", set(new), dict)
    StateMigration(describe({"kind": state_of(before)}), describe({"kind": state_of(after)}), (covered,))


def test_wider_type_needs_no_step() -> None:
    before = msgspec.defstruct("Inner", [("a", int), ("b", Few)], module="tailrace.imaginary")
    after = msgspec.defstruct("Inner", [("a", int | None), ("b", Many)], module="tailrace.imaginary")
    read = migrated(placed(state_of(before), [before(1, Few.A)]), state_of(after))
    assert read == placed(state_of(after), [after(1, Many.A)])


def test_moved_struct_needs_no_step() -> None:
    before = struct("Inner", {"a": "int"})
    after = msgspec.defstruct(
        "Renamed", [("a", int, 0)], frozen=True, kw_only=True, module="tailrace.elsewhere"
    )
    read = migrated(placed(state_of(before), [before(a=3)]), state_of(after))
    assert read == placed(state_of(after), [after(a=3)])


def test_states_of_this_release_are_read_as_they_are() -> None:
    types = describe(state_types())
    migration = StateMigration(types, types)
    for kind in types.roots:
        assert migration.apply(kind, b"any bytes") == b"any bytes"
