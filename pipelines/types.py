"""Record types: the layout of a stream's records in Arrow columns.

A stream's record type is derived from type hints or declared. `str`, `int`, `float`, `bool` and `bytes` are one column;
a tuple, a NamedTuple or a dataclass has one column per field, and nested ones are structs. A type without such a layout
is pickled, record by record, into one binary column: always correct, but slow.

A record is restored unchanged. Values of another type are refused (`RecordTypeError`), not converted. A dataclass that
its fields alone cannot restore (`__post_init__`, `InitVar`, its own `__init__`) is pickled. Classes travel as
cloudpickle bytes inside the type's JSON form and are loaded when the first record is restored, so that reading a type
never runs code. Integers are 64 bits wide.

A column is named after its field, `f0`, `f1`, ... in tuples, and `value` for a single column. Additional columns of
other modules need names that are not Python identifiers.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import inspect
import operator
import pickle
import reprlib
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from ..infra.json_depth import MOST, is_value_too_deep
from .flink_names import FlinkNames
from .sentinels import class_hints, dump_code, load_code

if TYPE_CHECKING:
    import pyarrow as pa


class RecordTypeError(TypeError):
    """A value does not fit its declared record type, or the JSON form of a record type is invalid."""


class RecordType(ABC):
    """The layout of a stream's records. Frozen; equal types have equal layouts."""

    __slots__ = ()

    @staticmethod
    def of(hint: object) -> RecordType:
        """Returns the record type of a type hint, or the given record type; a type without a layout is pickled. Raises
        RecordTypeError for a value, such as a list of types."""
        if isinstance(hint, (int, float, str, bytes, list, tuple, dict, set)):
            raise RecordTypeError(
                f"{reprlib.repr(hint)} is not a type: declare a class, tuple[...], list[...] or one of Types"
            )
        return _from_hint(hint, frozenset())

    @staticmethod
    def from_json(form: object) -> RecordType:
        """Reads the result of `to_json`. Loads no classes. Raises RecordTypeError."""
        if is_value_too_deep(form):
            raise RecordTypeError(f"a record type is nested more than {MOST} deep")
        try:
            return _from_json(form)
        except (KeyError, ValueError, TypeError) as error:
            raise RecordTypeError(f"{reprlib.repr(form)} is not a record type: {error}") from error

    @property
    def immutable(self) -> bool:
        """Whether no record of this type can be changed in place. Loads the classes of a type."""
        return all(of.immutable for _, of in self.columns())

    def columns(self) -> tuple[tuple[str, RecordType], ...]:
        """The name and type of each column of a record."""
        return (("value", self),)

    def schema(self) -> pa.Schema:
        """The Arrow schema of a batch of records: one field per column."""
        import pyarrow as pa

        return pa.schema([_arrow_field(name, of) for name, of in self.columns()])

    def to_columns(self, values: Sequence[Any]) -> list[pa.Array]:
        """Returns the records as arrays, one per column, each as long as `values`. Raises RecordTypeError."""
        return [self.encode(values)]

    def from_columns(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> list[Any]:
        """Returns the records of the result of `to_columns`."""
        (column,) = columns
        return self.decode(_whole(column))

    def to_lists(self, values: Sequence[Any]) -> list[list[Any]]:
        """Returns the records as lists, one per column; the values in a column are not checked. Raises
        RecordTypeError."""
        return [list(values)]

    def from_lists(self, lists: Sequence[list[Any]]) -> list[Any]:
        """Returns the records of the result of `to_lists`."""
        (values,) = lists
        return values

    @abstractmethod
    def to_json(self) -> Any:
        """Returns JSON data that `from_json` reads. Classes are pickled by cloudpickle, in base64."""

    @abstractmethod
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the values in one array."""

    @abstractmethod
    def encode(self, values: Sequence[Any]) -> pa.Array:
        """Returns the values as one array. Raises RecordTypeError."""

    @abstractmethod
    def decode(self, array: pa.Array) -> list[Any]:
        """Returns the values of an array of `encode`."""


ScalarKind = Literal["str", "int", "float", "bool", "bytes"]

_ARROW_NAMES: Mapping[str, str] = {
    "str": "string",
    "int": "int64",
    "float": "float64",
    "bool": "bool_",
    "bytes": "binary",
}
_EXACT: Mapping[str, frozenset[type]] = {
    "str": frozenset({str}),
    "int": frozenset({int}),
    "float": frozenset({float, int}),
    "bool": frozenset({bool}),
    "bytes": frozenset({bytes}),
}
# Converts a value of a subclass (a StrEnum, True as an int, a numpy number) to the plain type.
_PLAIN: Mapping[str, tuple[Callable[[Any], bool], Callable[[Any], Any]]] = {
    "str": (lambda v: isinstance(v, str), lambda v: str.__str__(v)),
    "int": (lambda v: hasattr(v, "__index__"), operator.index),
    "float": (lambda v: isinstance(v, float) or hasattr(v, "__index__"), float),
    "bool": (lambda v: type(v).__name__ in ("bool", "bool_"), bool),
    "bytes": (lambda v: isinstance(v, (bytes, bytearray)), bytes),
}


@dataclass(frozen=True, slots=True)
class Scalar(RecordType):
    """A plain value in a column of its own Arrow type."""

    kind: ScalarKind

    @property
    def immutable(self) -> bool:
        return True

    def __str__(self) -> str:
        return self.kind

    def to_json(self) -> Any:
        return self.kind

    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return getattr(pa, _ARROW_NAMES[self.kind])()

    def encode(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        if not _EXACT[self.kind].issuperset(map(type, values)):
            values = [self._plain(value) for value in values]
        try:
            return pa.array(values, self.arrow_type())
        except OverflowError as error:
            raise RecordTypeError(f"a value does not fit in {self}: it has more than 64 bits") from error
        except (pa.ArrowException, UnicodeError) as error:
            raise RecordTypeError(f"a value does not fit in {self}: {error}") from error

    def decode(self, array: pa.Array) -> list[Any]:
        if self.kind in ("int", "float"):  # several times as fast as to_pylist
            values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
            return values
        return list(array.to_pylist())

    def _plain(self, value: Any) -> Any:
        fits, convert = _PLAIN[self.kind]
        if not fits(value):
            raise _misfit(value, self)
        return convert(value)


@dataclass(frozen=True, slots=True)
class Pickled(RecordType):
    """Any value, pickled into a binary column."""

    @property
    def immutable(self) -> bool:
        return False

    def __str__(self) -> str:
        return "pickled"

    def to_json(self) -> Any:
        return "pickled"

    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.binary()

    def encode(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        return pa.array(self.dump(values), pa.binary())

    def decode(self, array: pa.Array) -> list[Any]:
        return self.load(array.to_pylist())

    def dump(self, values: Sequence[Any]) -> list[bytes]:
        """Pickles each value."""
        return list(map(_dumps, values))

    def load(self, pickled: Iterable[bytes]) -> list[Any]:
        """Loads the values of `dump`."""
        return list(map(pickle.loads, pickled))


@dataclass(frozen=True, slots=True)
class OptionalOf(RecordType):
    """None, or a value of another type."""

    item: RecordType

    @property
    def immutable(self) -> bool:
        return self.item.immutable

    def __str__(self) -> str:
        return f"{self.item} | None"

    def to_json(self) -> Any:
        return {"kind": "optional", "of": self.item.to_json()}

    def arrow_type(self) -> pa.DataType:
        return self.item.arrow_type()

    def encode(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        present = [value for value in values if value is not None]
        array = self.item.encode(present)
        if len(present) == len(values):
            return array
        position = iter(range(len(present)))
        return array.take(
            pa.array([None if value is None else next(position) for value in values], pa.int64())
        )

    def decode(self, array: pa.Array) -> list[Any]:
        present = iter(self.item.decode(array.drop_null()))
        return [next(present) if valid else None for valid in array.is_valid().to_pylist()]


@dataclass(frozen=True, slots=True)
class ListOf(RecordType):
    """A list of values of one type."""

    item: RecordType

    @property
    def immutable(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"list[{self.item}]"

    def to_json(self) -> Any:
        return {"kind": "list", "of": self.item.to_json()}

    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.list_(_arrow_field("item", self.item))

    def encode(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        for value in values:
            if type(value) is not list:
                raise _misfit(value, self)
        offsets = [0]
        for value in values:
            offsets.append(offsets[-1] + len(value))
        items = self.item.encode([item for value in values for item in value])
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, type=self.arrow_type())

    def decode(self, array: pa.Array) -> list[Any]:
        items = self.item.decode(array.flatten())
        result, start = [], 0
        for length in array.value_lengths().to_pylist():
            result.append(items[start : start + length])
            start += length
        return result


class _Composite(RecordType):
    """The common part of types with several columns."""

    __slots__ = ()

    def to_columns(self, values: Sequence[Any]) -> list[pa.Array]:
        self._check(values)
        return [of.encode(self._column(values, i)) for i, (_, of) in enumerate(self.columns())]

    def from_columns(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> list[Any]:
        own = self.columns()
        if len(columns) != len(own):
            raise RecordTypeError(f"{self} has {len(own)} columns, not {len(columns)}")
        decoded = [of.decode(_whole(column)) for (_, of), column in zip(own, columns, strict=True)]
        return self._rows(decoded)

    def to_lists(self, values: Sequence[Any]) -> list[list[Any]]:
        self._check(values)
        return [self._column(values, i) for i in range(len(self.columns()))]

    def from_lists(self, lists: Sequence[list[Any]]) -> list[Any]:
        return self._rows(list(lists))

    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.struct([_arrow_field(name, of) for name, of in self.columns()])

    def encode(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        return pa.StructArray.from_arrays(self.to_columns(values), fields=list(self.arrow_type()))

    def decode(self, array: pa.Array) -> list[Any]:
        return self.from_columns(array.flatten())

    @abstractmethod
    def _check(self, values: Sequence[Any]) -> None: ...

    @abstractmethod
    def _column(self, values: Sequence[Any], index: int) -> list[Any]: ...

    @abstractmethod
    def _rows(self, columns: list[list[Any]]) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class TupleOf(_Composite):
    """A tuple of one or more values, each of its own type."""

    items: tuple[RecordType, ...]

    def __str__(self) -> str:
        return f"tuple[{', '.join(map(str, self.items))}]"

    def columns(self) -> tuple[tuple[str, RecordType], ...]:
        return tuple((f"f{i}", of) for i, of in enumerate(self.items))

    def to_json(self) -> Any:
        return {"kind": "tuple", "of": [item.to_json() for item in self.items]}

    def _check(self, values: Sequence[Any]) -> None:
        width = len(self.items)
        for value in values:
            if type(value) is not tuple or len(value) != width:
                raise _misfit(value, self)

    def _column(self, values: Sequence[Any], index: int) -> list[Any]:
        return [value[index] for value in values]

    def _rows(self, columns: list[list[Any]]) -> list[Any]:
        return list(zip(*columns, strict=True))


@dataclass(frozen=True, slots=True)
class ClassOf(_Composite):
    """A dataclass or NamedTuple, one column per field."""

    name: str
    form: Literal["dataclass", "named_tuple"]
    fields: tuple[tuple[str, RecordType], ...]
    # The class, or its cloudpickle bytes if another process has pickled it.
    source: type | bytes = field(compare=False, repr=False)

    FORMS: ClassVar[frozenset[str]] = frozenset({"dataclass", "named_tuple"})

    def __str__(self) -> str:
        return self.name

    @property
    def immutable(self) -> bool:
        if not all(of.immutable for _, of in self.fields):
            return False
        return self.form == "named_tuple" or bool(self.cls.__dict__["__dataclass_params__"].frozen)

    @property
    def cls(self) -> type:
        """The class; runs the job's code if it must be loaded first."""
        return self.source if isinstance(self.source, type) else _load_class(self.source)

    def columns(self) -> tuple[tuple[str, RecordType], ...]:
        return self.fields

    def to_json(self) -> Any:
        return {
            "kind": self.form,
            "name": self.name,
            "fields": [[name, of.to_json()] for name, of in self.fields],
            "class": base64.b64encode(_class_bytes(self.source)).decode("ascii"),
        }

    def _check(self, values: Sequence[Any]) -> None:
        cls = self.cls
        if not {cls}.issuperset(map(type, values)):
            raise _misfit(next(value for value in values if type(value) is not cls), self)

    def _column(self, values: Sequence[Any], index: int) -> list[Any]:
        return list(map(operator.attrgetter(self.fields[index][0]), values))

    def _rows(self, columns: list[list[Any]]) -> list[Any]:
        cls = self.cls
        if self.form == "dataclass" and any(f.kw_only for f in dataclasses.fields(cls)):
            names = [name for name, _ in self.fields]
            return [cls(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
        return list(map(cls, *columns))


PICKLED = Pickled()


def load_classes(of: RecordType) -> None:
    """Loads the classes of a type. Runs the job's code, and raises any error of it."""
    match of:
        case OptionalOf(item) | ListOf(item):
            load_classes(item)
        case ClassOf() | TupleOf():
            for _, item in of.columns():
                load_classes(item)
            if isinstance(of, ClassOf) and isinstance(of.source, bytes):
                _load_class(of.source)
        case _:
            pass


T = TypeVar("T")
Declared = type[T] | RecordType | types.UnionType | None
"""A declared type of records, for type checkers: a class, one of `Types`, or `T | None`. None: that of the hints."""


class Types(metaclass=FlinkNames):
    """Declared record types, by PyFlink's names; a plain Python type is accepted as well."""

    @staticmethod
    def STRING() -> RecordType:
        """`str`."""
        return Scalar("str")

    @staticmethod
    def LONG() -> RecordType:
        """`int`, 64 bits."""
        return Scalar("int")

    @staticmethod
    def INT() -> RecordType:
        """`int`, 64 bits, the same as LONG."""
        return Scalar("int")

    @staticmethod
    def DOUBLE() -> RecordType:
        """`float`, 64 bits."""
        return Scalar("float")

    @staticmethod
    def FLOAT() -> RecordType:
        """`float`, 64 bits, the same as DOUBLE."""
        return Scalar("float")

    @staticmethod
    def BOOLEAN() -> RecordType:
        """`bool`."""
        return Scalar("bool")

    @staticmethod
    def BYTES() -> RecordType:
        """`bytes`."""
        return Scalar("bytes")

    @staticmethod
    def TUPLE(items: Iterable[object]) -> RecordType:
        """`tuple[...]`, of types or record types, one or more."""
        of = tuple(RecordType.of(item) for item in items)
        return TupleOf(of) if of else PICKLED

    @staticmethod
    def LIST(item: object) -> RecordType:
        """`list[item]`."""
        return ListOf(RecordType.of(item))

    @staticmethod
    def OPTIONAL(item: object) -> RecordType:
        """`item | None`."""
        return _optional(RecordType.of(item))

    @staticmethod
    def POJO(cls: type) -> RecordType:
        """A dataclass or NamedTuple. Raises RecordTypeError if its fields alone cannot restore it."""
        found = RecordType.of(cls)
        if not isinstance(found, ClassOf):
            raise RecordTypeError(
                f"{cls!r} is not a dataclass or NamedTuple that its fields alone can restore:"
                " use Types.PICKLED_BYTE_ARRAY()"
            )
        return found

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> RecordType:
        """Anything that can be pickled."""
        return PICKLED


_SCALARS: Mapping[type, ScalarKind] = {str: "str", int: "int", float: "float", bool: "bool", bytes: "bytes"}


def _from_hint(hint: object, within: frozenset[type]) -> RecordType:
    """`within` holds the classes that are being resolved, for classes whose fields refer to themselves."""
    if isinstance(hint, RecordType):
        return hint
    if isinstance(hint, typing.NewType):
        return _from_hint(hint.__supertype__, within)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _from_hint(arguments[0], within)
    if origin is typing.Union or origin is types.UnionType:
        present = [argument for argument in arguments if argument is not type(None)]
        return (
            _optional(_from_hint(present[0], within))
            if len(present) == 1 and len(arguments) == 2
            else PICKLED
        )
    if origin is tuple and arguments and arguments[-1] is not Ellipsis and arguments != ((),):
        return TupleOf(tuple(_from_hint(argument, within) for argument in arguments))
    if origin is list and arguments:
        return ListOf(_from_hint(arguments[0], within))
    if isinstance(origin, type) and _has_fields(origin) and origin not in within:
        given = dict(zip(getattr(origin, "__parameters__", ()), arguments, strict=False))
        return _of_class(origin, within | {origin}, given)
    if isinstance(hint, type) and origin is None and hint not in within:
        if hint in _SCALARS:
            return Scalar(_SCALARS[hint])
        return _of_class(hint, within | {hint}, {})
    return PICKLED


def _has_fields(cls: type) -> bool:
    return dataclasses.is_dataclass(cls) or "_fields" in cls.__dict__


def with_type_arguments(hint: Any, given: Mapping[object, object]) -> object:
    """Returns a hint with type variables replaced by their arguments."""
    if isinstance(hint, typing.TypeVar):
        return given.get(hint, hint)
    inside = getattr(hint, "__parameters__", ())
    if isinstance(hint, type) or not inside:
        return hint
    return hint[tuple(given.get(variable, variable) for variable in inside)]


def _of_class(cls: type, within: frozenset[type], given: Mapping[object, object]) -> RecordType:
    if issubclass(cls, tuple) and (names := cls.__dict__.get("_fields")) and "__new__" in cls.__dict__:
        form: Literal["dataclass", "named_tuple"] = "named_tuple"
    elif _rebuilt_by_its_fields(cls) and (names := tuple(f.name for f in dataclasses.fields(cls))):
        form = "dataclass"
    else:
        return PICKLED
    hints = class_hints(cls)
    fields = tuple((name, _from_hint(with_type_arguments(hints.get(name), given), within)) for name in names)
    return ClassOf(cls.__name__, form, fields, cls)


def _rebuilt_by_its_fields(cls: type) -> bool:
    """Whether the class, called with its fields' values, returns an equal object and runs no user code."""
    parameters = cls.__dict__.get("__dataclass_params__")
    if parameters is None or not parameters.init or hasattr(cls, "__post_init__"):
        return False
    generated = getattr(cls.__dict__["__init__"], "__code__", None)
    if (
        generated is None
        or generated.co_filename != "<string>"
        or any("__new__" in vars(base) for base in cls.__mro__[:-1])
    ):
        return False
    return sorted(inspect.signature(cls).parameters) == sorted(f.name for f in dataclasses.fields(cls))


def _optional(item: RecordType) -> RecordType:
    """A pickled type includes None, and `T | None | None` is `T | None`."""
    return item if isinstance(item, (Pickled, OptionalOf)) else OptionalOf(item)


def _from_json(form: Any) -> RecordType:
    match form:
        case "str" | "int" | "float" | "bool" | "bytes":
            return Scalar(form)
        case "pickled":
            return PICKLED
        case {"kind": "optional", "of": item}:
            return _optional(_from_json(item))
        case {"kind": "list", "of": item}:
            return ListOf(_from_json(item))
        case {"kind": "tuple", "of": [_, *_] as items}:
            return TupleOf(tuple(map(_from_json, items)))
        case {
            "kind": "dataclass" | "named_tuple" as kind,
            "name": str(name),
            "fields": [_, *_] as fields,
            "class": str(code),
        }:
            own = tuple((str(field_name), _from_json(of)) for field_name, of in fields)
            return ClassOf(name, kind, own, base64.b64decode(code, validate=True))
        case _:
            raise ValueError("its kind is unknown or a part is missing")


def _arrow_field(name: str, of: RecordType) -> pa.Field:
    import pyarrow as pa

    return pa.field(name, of.arrow_type(), nullable=isinstance(of, OptionalOf))


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _misfit(value: Any, of: RecordType) -> RecordTypeError:
    text = repr(value)
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return RecordTypeError(
        f"a record or field is declared {of} but is {type(value).__name__}: {shown};"
        " correct the type hint, or declare another output_type"
    )


def _dumps(value: Any) -> bytes:
    """Pickles by reference if that can be read elsewhere, else pickles the class by value with it."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        return dump_code(value, sends_program=False)


def _class_bytes(source: type | bytes) -> bytes:
    return source if isinstance(source, bytes) else dump_code(source)


@functools.lru_cache(maxsize=1024)
def _load_class(code: bytes) -> type:
    cls = load_code(code)
    if not isinstance(cls, type):
        raise RecordTypeError(f"the class of a record type is not a class but {type(cls).__name__}")
    return cls
