"""An external record has its declared type, or is a bad record that is named where it is read.

Random classes are pickled by value and loaded in another interpreter, which reads random JSON and Avro values. A small
validator, which shares no code with the readers, computes the expected record.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.pipelines.types import ClassOf, RecordType

Ask = Callable[[dict[str, Any]], dict[str, Any]]
EXAMPLES: Final = int(os.environ.get("EXAMPLES", "12"))
NOTHING: Final = object()
SCALARS: Final[dict[str, type]] = {"str": str, "int": int, "float": float, "bool": bool}


@dataclass(frozen=True)
class Shape:
    """A type as the validator sees it. `kind`: a scalar's, `optional`, `list`, or `class` with `fields`."""

    kind: str
    item: Shape | None = None
    fields: tuple[tuple[str, Shape, Any, bool], ...] = ()
    """Name, shape, default (NOTHING: none), and whether a factory gives it."""
    form: str = "dataclass"
    base_fields: int = 0
    """How many of a dataclass's fields it inherits."""
    postponed: bool = False
    """Whether a dataclass's annotations are texts, as after `from __future__ import annotations`."""

    def hint(self) -> Any:
        match self.kind:
            case "optional":
                assert self.item is not None
                return self.item.hint() | None
            case "list":
                assert self.item is not None
                return list[self.item.hint()]  # type: ignore[misc]
            case "class":
                return self.named_tuple() if self.form == "named_tuple" else self.dataclass()
            case _:
                return SCALARS[self.kind]

    def named_tuple(self) -> type:
        made = typing.NamedTuple("Made", [(name, shape.hint()) for name, shape, *_ in self.fields])  # type: ignore[misc]
        defaults = {name: default for name, _, default, _ in self.fields if default is not NOTHING}
        made.__new__.__defaults__ = tuple(defaults.values())
        made._field_defaults = defaults
        return made

    def dataclass(self) -> type:
        def made(fields: Any, bases: tuple[type, ...], kw_only: bool) -> type:
            own = {"__module__": __name__}
            return dataclasses.make_dataclass("Made", fields, bases=bases, kw_only=kw_only, namespace=own)

        hints = [shape.hint() for _, shape, *_ in self.fields]
        if self.postponed:
            hints = list(map(_postponed, hints))
        fields = [
            (name, hint, _field(default, by))
            for hint, (name, _, default, by) in zip(hints, self.fields, strict=True)
        ]
        kw_only = self.form == "kw_only"
        bases = (made(fields[: self.base_fields], (), kw_only),) if self.base_fields else ()
        return made(fields[self.base_fields :], bases, kw_only)


def _postponed(hint: Any) -> str:
    """Returns an annotation as text that resolves in this module, and not in the one that loads the class."""
    name = f"Hint{id(hint)}"
    globals()[name] = hint
    return name


def _field(default: Any, by_factory: bool) -> Any:
    if default is NOTHING:
        return dataclasses.field()
    return (
        dataclasses.field(default_factory=lambda: default)
        if by_factory
        else dataclasses.field(default=default)
    )


class Bad(Exception):
    """The value is no record of the shape."""


def meaning(shape: Shape, value: Any, defaults: bool = True, floats: bool = True) -> Any:
    """Returns the record as the other interpreter shows it. `floats`: an integer becomes a float where one is
    declared."""
    match shape.kind:
        case "optional":
            assert shape.item is not None
            return "NoneType None" if value is None else meaning(shape.item, value, defaults, floats)
        case "list" if isinstance(value, list):
            assert shape.item is not None
            return {"list": [meaning(shape.item, item, defaults, floats) for item in value]}
        case "class" if isinstance(value, dict):
            return {"class": [[f[0], _field_meaning(f, value, defaults, floats)] for f in shape.fields]}
        case "int" if type(value) is int and -(2**63) <= value < 2**63:
            return f"int {value!r}"
        case "float" if type(value) in (int, float):
            return f"float {float(value)!r}" if floats or type(value) is float else f"int {value!r}"
        case "str" | "bool" if type(value) is SCALARS[shape.kind]:
            return f"{shape.kind} {value!r}"
    raise Bad


def _field_meaning(
    field: tuple[str, Shape, Any, bool], value: dict[str, Any], defaults: bool, floats: bool
) -> Any:
    name, shape, default, _ = field
    if name in value:
        return meaning(shape, value[name], defaults, floats)
    if not defaults or default is NOTHING:
        raise Bad
    return meaning(shape, default, defaults, floats=False)


scalars = st.sampled_from(sorted(SCALARS)).map(Shape)
words = st.text("abcé ", max_size=3)
integers = st.one_of(st.integers(-9, 9), st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**30]))
decimals = st.sampled_from([0.5, -1.0, 2.0, 1e300])
DEFAULTS: Final = {"int": 7, "float": 0.25, "bool": True, "str": "d"}


def _fitting_default(shape: Shape) -> Any:
    if shape.kind != "list" or shape.item is None:
        return DEFAULTS.get(shape.kind)
    item = DEFAULTS.get(shape.item.kind)
    return [] if item is None else [item]


@st.composite
def classes(draw: st.DrawFn, inner: st.SearchStrategy[Shape] = scalars) -> Shape:
    """Draws classes of 1 to 4 fields; fields without a default come first, as Python requires."""
    form = draw(st.sampled_from(["dataclass", "kw_only", "named_tuple"]))
    shapes = draw(st.lists(inner, min_size=1, max_size=4))
    required = draw(st.integers(0, len(shapes)))
    fields = []
    for i, shape in enumerate(shapes):
        default: Any = NOTHING
        if i >= required:
            fitting = _fitting_default(shape)  # None, of a class, does not fit
            default = draw(st.sampled_from([fitting, fitting, None]))
        by_factory = form != "named_tuple" and (isinstance(default, list) or draw(st.booleans()))
        fields.append((f"f{i}", shape, default, by_factory))
    inherited = draw(st.integers(0, len(fields))) if form != "named_tuple" else 0
    postponed = form != "named_tuple" and draw(st.booleans())
    return Shape("class", fields=tuple(fields), form=form, base_fields=inherited, postponed=postponed)


shapes = st.recursive(
    scalars,
    lambda inner: st.one_of(
        inner.filter(lambda s: s.kind != "optional").map(lambda item: Shape("optional", item)),
        inner.map(lambda item: Shape("list", item)),
        classes(inner),
    ),
    max_leaves=6,
)


def values(shape: Shape) -> st.SearchStrategy[Any]:
    """Draws values of the shape, mostly: each part may have another type, lack fields, or have additional ones."""
    match shape.kind:
        case "optional":
            assert shape.item is not None
            right: st.SearchStrategy[Any] = st.none() | values(shape.item)
        case "list":
            assert shape.item is not None
            right = st.lists(values(shape.item), max_size=2)
        case "class":
            fields = {name: values(item) for name, item, *_ in shape.fields}
            few = {name: strategy for i, (name, strategy) in enumerate(fields.items()) if i}
            right = st.one_of(
                st.fixed_dictionaries(fields),
                st.fixed_dictionaries(few, optional={"more": st.just(1)}),
            )
        case kind:
            right = {"str": words, "int": integers, "float": decimals, "bool": st.booleans()}[kind]
    wrong = st.one_of(st.none(), words, integers, decimals, st.booleans(), st.just([]), st.just({}))
    return st.integers(0, 9).flatmap(lambda n: wrong if n == 0 else right)


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Yields a function that reads values in another interpreter."""
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("foreign_reader.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        to, of = child.stdin, child.stdout

        def asked(question: dict[str, Any]) -> dict[str, Any]:
            to.write(json.dumps(question) + "\n")
            to.flush()
            answer: dict[str, Any] = json.loads(of.readline())
            return answer

        yield asked
        to.close()


def expected(shape: Shape, values: list[Any]) -> tuple[list[Any], list[str]]:
    records, bad = [], []
    for i, value in enumerate(values):
        try:
            records.append(meaning(shape, value))
        except Bad:
            bad.append(str(i))
    return records, bad


Order: Final = Shape(
    "class", fields=(("id", Shape("int"), NOTHING, False), ("total", Shape("float"), NOTHING, False))
)


@given(st.data(), classes(shapes))
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
def test_json_value_is_record_of_class_or_bad(ask: Ask, data: st.DataObject, shape: Shape) -> None:
    _check_json(ask, shape, data.draw(st.lists(values(shape), min_size=1, max_size=6)))


@pytest.mark.parametrize("form", ["dataclass", "kw_only", "named_tuple"])
def test_record_without_field_or_with_wide_integer_is_bad(ask: Ask, form: str) -> None:
    shape = dataclasses.replace(Order, form=form)
    _check_json(ask, shape, [{"id": 1}, {"total": 1.5}, {"id": 2**63, "total": 1}, {"id": 1, "total": 2}])


def _check_json(ask: Ask, shape: Shape, given_values: list[Any]) -> None:
    messages = [base64.b64encode(json.dumps(value).encode()).decode() for value in given_values]
    answer = ask(
        {"type": RecordType.of(shape.hint()).to_json(), "format": {"kind": "json"}, "values": messages}
    )
    assert (answer["records"], list(answer["bad"])) == expected(shape, given_values)
    assert all(
        any(word in why for word in ("$", "Expected", "required", "default"))
        for why in answer["bad"].values()
    )


def schema_of(value: Any, name: str = "r") -> Any:
    """Returns an Avro schema for this value."""
    match value:
        case dict():
            fields = [{"name": key, "type": schema_of(item, f"{name}_{key}")} for key, item in value.items()]
            return {"type": "record", "name": name, "fields": fields}
        case list():
            items = [schema_of(element, f"{name}_{i}") for i, element in enumerate(value)]
            return {"type": "array", "items": _union(items) if items else "null"}
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "long"
        case float():
            return "double"
        case _:
            return "string"


def _union(items: list[Any]) -> Any:
    results: list[Any] = []
    for item in items:
        if item not in results:
            results.append(item)
    return results[0] if len(results) == 1 else results


def writable(value: Any) -> bool:
    """Returns whether Avro can represent the value: 64 bits, and lists without two records, lists, or kinds of
    number."""
    match value:
        case dict():
            return all(map(writable, value.values()))
        case list():
            return len(value) < 2 and all(map(writable, value))
        case int():
            return -(2**63) <= value < 2**63
        case _:
            return True


@given(st.data(), classes(shapes))
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_avro_value_is_record_of_class_or_bad(
    ask: Ask, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, shape: Shape
) -> None:
    value = data.draw(values(shape).filter(lambda value: isinstance(value, dict) and writable(value)))
    _check_avro(ask, tmp_path_factory.getbasetemp() / "records.avro", shape, value)


@pytest.mark.parametrize("value", [{"id": 1}, {"id": "1", "total": 1.5}, {"id": 1, "total": 2}])
def test_avro_record_with_other_field_is_bad(ask: Ask, tmp_path: Path, value: dict[str, Any]) -> None:
    _check_avro(ask, tmp_path / "records.avro", Order, value)


def _check_avro(ask: Ask, file: Path, shape: Shape, value: dict[str, Any]) -> None:
    record_type = RecordType.of(shape.hint())
    assert isinstance(record_type, ClassOf)
    schema = schema_of(value)
    stream = BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    form = {"kind": "avro", "schema": json.dumps(schema), "framing": "none"}
    message = base64.b64encode(stream.getvalue()).decode()
    answer = ask({"type": record_type.to_json(), "format": form, "values": [message]})
    assert (answer["records"], list(answer["bad"])) == expected(shape, [value])
    with file.open("wb") as target:
        fastavro.writer(target, schema, [value])
    answer = ask({"type": record_type.to_json(), "file": str(file)})
    try:
        assert answer == {"records": [meaning(shape, value, defaults=False, floats=False)]}
    except Bad:
        assert str(file) in answer["failure"]
