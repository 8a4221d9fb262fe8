"""Encodes events to Avro's binary form and decodes them, by functions compiled from the schemas.

A general Avro library creates nested dicts, from which the typed event is then built; that is most of the cost of an
event. Here each record type gets, at its first use, one function that writes its fields and one that reads them, as
`dataclasses` generates its methods: Python source, generated from the schema. Their output equals fastavro's; tests
compare both.

Reading does not trust the input: it checks that sizes are not negative, integers fit, symbols and branches exist, and
the last field ends at the end of the bytes. A size that exceeds the bytes is an error there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

from . import avro, primitives, types
from .catalog import EVENTS
from .event import Event
from .types import Header

_SAID_AGAIN = frozenset({types.JobGraph.AVRO_NAME})
"""Large fields that several events repeat: the submission, the start of the JobMaster, and, for a small graph, one
event per TaskExecutor."""

Write = Callable[[Event], bytes]
Read = Callable[[bytes, int], Event]


class Functions(NamedTuple):
    """The functions that write and read one kind of event.

    `write` returns the Avro body. `read` takes a whole message and the offset of the body in it. For a value or bytes
    that do not fit, both raise ValueError, IndexError, TypeError, AttributeError, KeyError or struct.error.
    """

    write: Write
    read: Read


@functools.cache
def functions(name: str) -> Functions:
    """Returns the functions of the event with that full name."""
    return _compiled(name)


@functools.cache
def reader_among_others(name: str) -> Callable[[bytes, int], tuple[Event, int]]:
    """Returns a reader of an event that begins somewhere in the bytes and does not end with them. It returns the
    event, and the offset after it. Raises like `read`; for a truncated text the offset is beyond the end of the
    bytes."""
    read: Callable[[bytes, int], tuple[Event, int]] = _reader(_Source(), name, _BEHIND)
    return read


class _Source:
    """The growing source of one record's functions, and the names that it refers to."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {
            "SIZES": primitives.SIZES,
            "FLAGS": primitives.FLAGS,
            "FLAG_VALUES": (False, True),
            "SMALL": tuple(n >> 1 ^ -(n & 1) for n in range(0x80)),
            "pack_double": primitives.DOUBLE.pack,
            "unpack_double": primitives.DOUBLE.unpack_from,
            "write_long": primitives.write_long,
            "write_int": primitives.write_int,
            "write_string": primitives.write_string,
            "write_bytes": primitives.write_bytes,
            "write_array": primitives.write_array,
            "write_map": primitives.write_map,
            "read_long": primitives.read_long,
            "read_time": primitives.read_time,
            "read_int": primitives.read_int,
            "read_size": primitives.read_size,
            "read_array": primitives.read_array,
            "ends": primitives.ends,
            "Event": Event,
            "Header": Header,
        }
        self._count = 0

    def new_name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def named(self, value: Any) -> str:
        name = self.new_name()
        self.names[name] = value
        return name

    def function(self, text: str, name: str) -> Any:
        # The source contains names of fields from our own .avsc files, and nothing from outside.
        exec(compile(text, f"<{name}>", "exec"), self.names)
        return self.names[name]


def _written(source: _Source, schema: Any, value: str) -> str:
    """Returns an expression for the bytes of the expression `value`."""
    match schema:
        case "string" | "bytes" | "long" | "int":
            return f"write_{schema}({value})"
        case "boolean":
            return f"FLAGS[{value}]"
        case "double":
            return f"pack_double({value})"
        case ["null", inner]:
            name = source.new_name()
            return f"b'\\0' if ({name} := {value}) is None else b'\\2' + {_written(source, inner, name)}"
        case {"type": "array", "items": items}:
            return f"write_array({value}, {_item_writer(source, items)})"
        case {"type": "map", "values": values}:
            return f"write_map({value}, {_item_writer(source, values)})"
        case {"type": str() as inner} if inner not in ("record", "enum", "array", "map"):
            return _written(source, inner, value)
        case str():
            return f"{_item_writer(source, schema)}({value})"
        case _:
            raise TypeError(f"{schema!r} is not written by schemas/binary.py: add it")


def _item_writer(source: _Source, schema: Any) -> str:
    """Returns the name of a function that writes one value."""
    match schema:
        case str() if schema in avro.schemas():
            if _is_enum(schema):
                symbols = {
                    symbol: primitives.varint(index << 1) for index, symbol in enumerate(_enum(schema))
                }
                return source.named(symbols.__getitem__)
            return source.named(_record(schema)[0])
        case _:
            return f"(lambda each: {_written(source, schema, 'each')})"


_SIGNED = "-(n >> 1) - 1 if n & 1 else n >> 1"
"""Decodes `n` to a signed number (Avro specification: zig-zag)."""


def _read_into(source: _Source, schema: Any, target: str) -> list[str]:
    """Returns statements that read a value at `at` of `data` into the variable `target`, and advance `at`."""
    size = [
        "n = data[at]",
        "if n & 0x81: n, at = read_size(data, at)",
        "else: n >>= 1; at += 1",
    ]
    match schema:
        case "string":
            return [*size, f"{target} = data[at:(at := at + n)].decode()"]
        case "bytes":
            return [*size, f"{target} = data[at:(at := at + n)]"]
        case "int":
            return [
                "n = data[at]",
                f"if n > 0x7f: {target}, at = read_int(data, at)",
                f"else: {target} = {_SIGNED}; at += 1",
            ]
        case "long":
            # Mostly offsets: three bytes at most, up to 2**20.
            return [
                f"if (n := data[at]) < 0x80: {target} = SMALL[n]; at += 1",
                f"elif (m := data[at + 1]) < 0x80: n += (m << 7) - 0x80; {target} = {_SIGNED}; at += 2",
                f"elif (k := data[at + 2]) < 0x80: n += (m << 7) + (k << 14) - 0x4080; {target} = {_SIGNED}; at += 3",
                f"else: {target}, at = read_long(data, at)",
            ]
        case {"type": "long", "logicalType": str()}:
            return [
                f"{target} = read_time(data[at:at + 8])",
                f"if {target} is None: {target}, at = read_long(data, at)",
                "else: at += 8",
            ]
        case "boolean":
            return [f"{target} = FLAG_VALUES[data[at]]", "at += 1"]
        case "double":
            return [f"({target},) = unpack_double(data, at)", "at += 8"]
        case ["null", inner]:
            return [
                "n = data[at]",
                "at += 1",
                f"if n == 0: {target} = None",
                "elif n == 2:",
                *(f"    {line}" for line in _read_into(source, inner, target)),
                "else: raise ValueError('a branch that its union does not have')",
            ]
        case {"type": "array", "items": items}:
            return [
                f"if data[at]: {target}, at = read_array(data, at, {_item_reader(source, items)})",
                f"else: {target} = (); at += 1",
            ]
        case {"type": "map", "values": values}:
            pair = ["def pair(data, at):"]
            pair += [f"    {line}" for line in _read_into(source, "string", "key")]
            pair += [f"    {line}" for line in _read_into(source, values, "value")]
            pair += ["    return (key, value), at"]
            reader = source.named(source.function("\n".join(pair), "pair"))
            return [
                f"if data[at]: {target}, at = read_array(data, at, {reader}); {target} = dict({target})",
                f"else: {target} = {{}}; at += 1",
            ]
        case {"type": str() as inner} if inner not in ("record", "enum", "array", "map"):
            return _read_into(source, inner, target)
        case str() if _is_enum(schema):
            return [*size, f"{target} = {source.named(tuple(_enum(schema)))}[n]"]
        case str():
            return [f"{target}, at = {source.named(_record(schema)[1])}(data, at)"]
        case _:
            raise TypeError(f"{schema!r} is not read by schemas/binary.py: add it")


def _item_reader(source: _Source, schema: Any) -> str:
    if isinstance(schema, str) and schema in avro.schemas() and not _is_enum(schema):
        return source.named(_record(schema)[1])
    item = ["def item(data, at):", *(f"    {line}" for line in _read_into(source, schema, "value"))]
    return source.named(source.function("\n".join([*item, "    return value, at"]), "item"))


def _is_enum(name: str) -> bool:
    return bool(avro.schemas()[name]["type"] == "enum")


def _enum(name: str) -> type[StrEnum]:
    kind: type[StrEnum] = getattr(types, name.rpartition(".")[2])
    if [member.value for member in kind] != avro.schemas()[name]["symbols"]:
        raise TypeError(f"{name} does not match its .avsc file: run `make schemas`")
    return kind


@functools.cache
def _record(name: str) -> tuple[Callable[[Any], bytes], Callable[[bytes, int], tuple[Any, int]]]:
    """Compiles the functions of a shared record type."""
    source = _Source()
    fields = avro.schemas()[name]["fields"]
    parts = _parts(source, fields, "value")
    write = source.function(f"def write(value): return b''.join(({parts}))", "write")
    source.names["Kind"] = getattr(types, name.rpartition(".")[2])
    lines, arguments = _fields(source, fields)
    text = "\n    ".join(["def read(data, at):", *lines, f"return Kind({arguments}), at"])
    read = source.function(text, "read")
    return write, primitives.remembering(read) if name in _SAID_AGAIN else read


def _compiled(name: str) -> Functions:
    source = _Source()
    header = avro.schemas()[Header.AVRO_NAME]["fields"]
    fields = avro.schemas()[name]["fields"][1:]
    parts = _parts(source, header, "header") + _parts(source, fields, "body")
    text = f"def write(event):\n    header = event.header; body = event.body\n    return b''.join(({parts}))"
    write = source.function(text, "write")
    return Functions(write, _reader(source, name, _ALONE))


_ALONE = ("if at != len(data): ends(data, at)", "return Event(header, Body({arguments}))")
_BEHIND = ("return Event(header, Body({arguments})), at",)


def _reader(source: _Source, name: str, last: tuple[str, ...]) -> Any:
    """Compiles a reader. `last`: the statements after all fields are read."""
    source.names["Body"] = EVENTS[name]
    header_lines, header_arguments = _fields(source, avro.schemas()[Header.AVRO_NAME]["fields"])
    lines, arguments = _fields(source, avro.schemas()[name]["fields"][1:])
    text = "\n    ".join(
        [
            "def read(data, at):",
            *header_lines,
            f"header = Header({header_arguments})",
            *lines,
            *(line.format(arguments=arguments) for line in last),
        ]
    )
    return source.function(text, "read")


def _parts(source: _Source, fields: list[dict[str, Any]], of: str) -> str:
    parts = []
    for field in fields:
        value = f"{of}.{field['name']}"
        if field["type"] == "string":
            text = source.new_name()
            parts.append(f"SIZES[len({text} := {value}.encode())], {text}")
        else:
            parts.append(_written(source, field["type"], value))
    return "".join(f"{part}, " for part in parts)


def _fields(source: _Source, fields: list[dict[str, Any]]) -> tuple[list[str], str]:
    lines, arguments = [], []
    for field in fields:
        target = source.new_name()
        lines += _read_into(source, field["type"], target)
        arguments.append(f"{field['name']}={target}")
    return lines, ", ".join(arguments)
