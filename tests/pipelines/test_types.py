"""A record type encodes and decodes records without change, and rejects other values."""

from __future__ import annotations

import base64
import json
import math
import pickle
import subprocess
import sys
from collections import namedtuple
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple, NewType

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.sentinels import dump_code, load_code
from tailrace.pipelines.types import PICKLED, ClassOf, RecordType, RecordTypeError, Scalar, Types


@dataclass(frozen=True, slots=True)
class WordWithCount:
    word: str
    count: int


@dataclass
class Nested:
    SEPARATOR: ClassVar[str] = ","
    first: WordWithCount | None
    more: list[WordWithCount]
    anything: Any
    pair: tuple[bool, bytes] = (True, b"")


@dataclass(kw_only=True)
class ByKeyword:
    x: int
    y: str = ""


class Point(NamedTuple):
    x: float
    label: str | None


words = st.builds(WordWithCount, st.text(), st.integers(-(2**63), 2**63 - 1))
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    bytes: st.binary(),
    int | None: st.none() | st.integers(-(2**63), 2**63 - 1),
    list[str]: st.lists(st.text()),
    list[int | None]: st.lists(st.none() | st.integers(0, 9)),
    tuple[str, int]: st.tuples(st.text(), st.integers(0, 9)),
    tuple[str, tuple[int, bool]]: st.tuples(st.text(), st.tuples(st.integers(0, 9), st.booleans())),
    tuple[int, int] | None: st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
    WordWithCount: words,
    WordWithCount | None: st.none() | words,
    Point: st.builds(Point, st.floats(allow_nan=False), st.none() | st.text()),
    ByKeyword: st.builds(ByKeyword, x=st.integers(0, 9), y=st.text()),
    Nested: st.builds(
        Nested,
        st.none() | words,
        st.lists(words),
        st.sets(st.integers()),
        st.tuples(st.booleans(), st.binary()),
    ),
    None: st.none() | st.text() | st.sets(st.integers()) | words,
}
records = st.sampled_from(list(VALUES)).flatmap(lambda hint: st.tuples(st.just(hint), st.lists(VALUES[hint])))


@given(records)
def test_records_survive_round_trip(of: tuple[Any, list[Any]]) -> None:
    hint, values = of
    sender = RecordType.of(hint)
    receiver = RecordType.from_json(sender.to_json())
    columns = sender.to_columns(values)
    batch = pa.record_batch(columns, schema=receiver.schema())
    batch.validate(full=True)
    back = receiver.from_columns(batch.columns)
    assert back == values
    assert list(map(type, back)) == list(map(type, values))


@given(records)
def test_records_are_decoded_from_slices_and_chunks(of: tuple[Any, list[Any]]) -> None:
    hint, values = of
    record_type = RecordType.of(hint)
    batch = pa.record_batch(record_type.to_columns(values), schema=record_type.schema())
    half = len(values) // 2
    assert record_type.from_columns(batch.slice(half).columns) == values[half:]
    whole = pa.Table.from_batches([batch.slice(half), batch.slice(0, half)])
    assert record_type.from_columns(whole.columns) == values[half:] + values[:half]


@pytest.mark.parametrize("hint", list(VALUES), ids=str)
def test_json_form_gives_equal_type(hint: object) -> None:
    record_type = RecordType.of(hint)
    assert RecordType.from_json(record_type.to_json()) == record_type


def test_nan_survives_round_trip() -> None:
    (back,) = Scalar("float").from_columns(Scalar("float").to_columns([math.nan]))
    assert math.isnan(back)


class NotDecorated(WordWithCount):
    pass


@dataclass
class Remembers:
    x: int

    def __post_init__(self) -> None:
        self.seen = 1


@dataclass
class WithInitVar:
    x: InitVar[int]
    y: int = 0


@dataclass
class OwnInit:
    x: int

    def __init__(self, x: int) -> None:
        self.x = x + 1


@dataclass
class Derived:
    x: int
    y: int = field(init=False, default=0)


@dataclass
class Itself:
    x: int
    parent: Itself | None = None


Untyped = namedtuple("Untyped", "a b")


@pytest.mark.parametrize(
    "cls", [NotDecorated, Remembers, WithInitVar, OwnInit, Derived], ids=lambda c: c.__name__
)
def test_class_that_its_fields_do_not_rebuild_is_pickled(cls: type) -> None:
    assert RecordType.of(cls) == PICKLED
    with pytest.raises(RecordTypeError, match="PICKLED_BYTE_ARRAY"):
        Types.POJO(cls)


@pytest.mark.parametrize(
    ("hint", "same_as"),
    [
        (NewType("Word", str), str),
        (Annotated[int, "years"], int),
        (Types.TUPLE([str, Types.LONG()]), tuple[str, int]),
        (Types.LIST(Types.DOUBLE()), list[float]),
        (Types.POJO(WordWithCount), WordWithCount),
        (dict[str, int], None),
        (int | str, None),
        (tuple[int, ...], None),
        (tuple[()], None),
        (Any, None),
        (Any | None, None),
    ],
    ids=str,
)
def test_type_hints_give_record_types(hint: object, same_as: object) -> None:
    assert RecordType.of(hint) == RecordType.of(same_as)


def test_fields_without_layout_are_pickled_individually() -> None:
    itself, untyped = RecordType.of(Itself), RecordType.of(Untyped)
    assert isinstance(itself, ClassOf)
    assert dict(itself.fields) == {"x": Scalar("int"), "parent": PICKLED}
    assert isinstance(untyped, ClassOf)
    assert dict(untyped.fields) == {"a": PICKLED, "b": PICKLED}
    value = Itself(1, Itself(2))
    assert itself.from_columns(itself.to_columns([value])) == [value]


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (str, 1),
        (str, b"bytes"),
        (str, None),
        (str, "\ud800"),
        (int, "1"),
        (int, 1.0),
        (int, 2**63),
        (float, "1"),
        (bool, 1),
        (bytes, "text"),
        (tuple[int, int], (1,)),
        (tuple[int, int], [1, 2]),
        (tuple[int, int], Point(1.0, None)),
        (list[int], (1,)),
        (WordWithCount, ("word", 1)),
        (WordWithCount, WordWithCount("word", "1")),  # type: ignore[arg-type]
        (WordWithCount, NotDecorated("word", 1)),
        (WordWithCount, None),
    ],
)
def test_value_of_other_type_is_rejected(hint: object, value: object) -> None:
    with pytest.raises(RecordTypeError, match=r"declared|fit"):
        RecordType.of(hint).to_columns([value])


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30])
def test_too_large_integer_is_named(value: int) -> None:
    with pytest.raises(RecordTypeError, match="a value does not fit in int: it has more than 64 bits"):
        RecordType.of(int).to_columns([value])


def test_value_that_typing_rules_allow_is_accepted() -> None:
    class Text(str):
        __slots__ = ()

    assert RecordType.of(str).from_columns(RecordType.of(str).to_columns([Text("a")])) == ["a"]
    assert RecordType.of(int).from_columns(RecordType.of(int).to_columns([True])) == [1]
    assert RecordType.of(float).from_columns(RecordType.of(float).to_columns([1])) == [1.0]


class Bomb:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("a class was loaded by reading a type",))


def test_reading_type_loads_no_class() -> None:
    form = RecordType.of(WordWithCount).to_json()
    form["class"] = base64.b64encode(pickle.dumps(Bomb())).decode()
    record_type = RecordType.from_json(form)
    assert record_type.schema().names == ["word", "count"]
    with pytest.raises(pytest.fail.Exception):
        record_type.from_columns(RecordType.of(WordWithCount).to_columns([WordWithCount("a", 1)]))


def _deep() -> object:
    form: object = "int"
    for _ in range(100_000):
        form = {"kind": "list", "of": form}
    return form


@pytest.mark.parametrize(
    "form",
    [
        None,
        1,
        "integer",
        {},
        {"kind": "list"},
        {"kind": "tuple", "of": []},
        {"kind": "dataclass", "name": "A", "fields": [["x"]], "class": ""},
        {"kind": "dataclass", "name": "A", "fields": [["x", "int"]], "class": "no base64!"},
    ],
)
def test_invalid_record_type_is_rejected(form: object) -> None:
    with pytest.raises(RecordTypeError, match="is not a record type"):
        RecordType.from_json(form)


def test_too_deeply_nested_type_is_rejected() -> None:
    with pytest.raises(RecordTypeError, match="nested more than 64 deep"):
        RecordType.from_json(_deep())


def test_class_decoded_by_msgspec_is_sent_by_value() -> None:
    @dataclass
    class Decoded:
        x: int

    decoded = msgspec.json.decode(b'{"x": 1}', type=Decoded)
    of = RecordType.from_json(RecordType.of(Decoded).to_json())
    assert of.from_columns(of.to_columns([decoded])) == [decoded]
    assert load_code(dump_code(lambda: Decoded(1)))() == decoded


def test_class_of_main_module_is_known_in_other_process() -> None:
    """The class is in __main__ here, and not there: it travels with the type, and keeps its identity."""
    program = """
import json, sys, cloudpickle
from dataclasses import dataclass
from tailrace.pipelines.types import RecordType
@dataclass(frozen=True)
class Own:
    x: int
    y: str
both = RecordType.of(Own), RecordType.of(tuple[Own, int])
function = cloudpickle.dumps(lambda o: (isinstance(o, Own), o.x))
print(json.dumps([[t.to_json() for t in both], function.hex()]))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    forms, function = json.loads(result.stdout)
    own, nested = map(RecordType.from_json, forms)
    assert isinstance(own, ClassOf)
    columns = [pa.array([1, 2]), pa.array(["a", "b"])]
    values = own.from_columns(columns)
    assert [pickle.loads(bytes.fromhex(function))(value) for value in values] == [(True, 1), (True, 2)]
    assert nested.from_columns(nested.to_columns([(values[0], 1)])) == [(values[0], 1)]
    assert PICKLED.from_columns(PICKLED.to_columns(values)) == values
