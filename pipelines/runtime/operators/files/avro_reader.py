"""Reads Avro object container files. A split has the blocks whose sync marker begins in one part of the file.

The marker is 16 random bytes that the writer draws for each file and puts after the header and each block; so a reader
can start anywhere and finds the next block (Avro specification, "Object Container Files").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from io import BytesIO
from itertools import islice
from operator import itemgetter
from typing import Any, Final

import fastavro
import msgspec

from ....types import ClassOf, ListOf, OptionalOf, Pickled, RecordType, TupleOf
from ...common.failures import TaskError, one_line
from ...records.record_validation import create_validator
from ..schema_coercion import field_hints
from .column_selection import wanted_columns
from .file_reader import SPLIT_BYTES, FileChunk, bounds, byte_splits, place_in_split, read_range, unreadable
from .source_storage import FoundFile, open_file

_ROWS: Final = 1_000
_SYNC_BYTES: Final = 16
_Build = Callable[[Any], Any]


class AvroFileReader:
    """Records by field name; dictionaries for a pickled record type. `columns`: only these; None: all needed."""

    def __init__(self, record_type: RecordType, columns: Sequence[str] | None) -> None:
        self._record_type = record_type
        self._columns = columns
        self._validate = create_validator(record_type)

    def splits(self, file: FoundFile) -> int:
        return byte_splits(file.size)

    def read(self, file: FoundFile, split: int) -> Iterator[FileChunk]:
        where = f"byte {split * SPLIT_BYTES}"
        try:
            with closing(open_file(file.path)) as source:
                schema = fastavro.reader(source).writer_schema
                first = source.tell()
                header = read_range(file.path, 0, first, source)
                begin, end = bounds(source, file.size, split, header[-_SYNC_BYTES:], first)
                blocks = read_range(file.path, begin, end, source)
        except TaskError:
            raise
        except Exception as error:  # fastavro raises any error on invalid bytes
            raise unreadable(file.path, where, error) from error
        if not blocks:
            return
        build = self._builder(file.path, schema)
        records = iter(fastavro.reader(BytesIO(header + blocks)))
        count = 0
        while True:
            try:
                read = list(islice(records, _ROWS))
            except Exception as error:
                raise unreadable(file.path, f"{where}, behind record {count} from there", error) from error
            if not read:
                return
            count += len(read)
            try:
                rows = self._records(build, read)
            except Exception:  # a user's class may raise any error, too
                raise self._refusal(file.path, where, build, read, count - len(read)) from None
            yield FileChunk(rows=rows)

    def place(self, split: int, record: int) -> str:
        return place_in_split(split, "record", record)

    def _records(self, build: _Build | None, data: list[Any]) -> list[Any]:
        records = data if build is None else list(map(build, data))
        if self._validate is not None:
            self._validate(records, "$")
        return records

    def _refusal(
        self, path: str, where: str, build: _Build | None, data: list[Any], before: int
    ) -> TaskError:
        for index, datum in enumerate(data):
            try:
                self._records(build, [datum])
            except Exception as error:
                why = f"{one_line(error)}; correct the type of the records, or the file"
                return TaskError(f"{path}, record {before + index} behind {where}, cannot be read: {why}")
        return TaskError(f"{path}, a record behind {where}, cannot be read")

    def _builder(self, path: str, schema: Any) -> _Build | None:
        if not isinstance(schema, dict) or schema.get("type") != "record":
            return builder(self._record_type)
        there = [field["name"] for field in schema["fields"]]
        names = wanted_columns(path, there, self._record_type, self._columns)
        match self._record_type:
            case Pickled():
                return (
                    None if self._columns is None else lambda record: {name: record[name] for name in names}
                )
            case ClassOf() as of:
                return builder(of)
            case TupleOf(items):
                return _tuple(names, items)
            case of:
                build = builder(of)
                (name,) = names
                return itemgetter(name) if build is None else lambda record: build(record[name])


def builder(of: RecordType) -> _Build | None:
    """Returns a function that makes a record of the type from dictionaries by field name, as Avro and JSON have
    them. None: no conversion."""
    match of:
        case ClassOf(form=form, fields=fields):
            hints = field_hints(of)
            cls = of.cls
            parts = [
                (name, partial(msgspec.convert, type=hints[name]) if name in hints else builder(field_type))
                for name, field_type in fields
            ]
            if form == "named_tuple" and not any(build for _, build in parts):
                names = [name for name, _ in parts]
                return lambda value: cls(*[value[name] for name in names])
            return lambda value: cls(
                **{name: value[name] if build is None else build(value[name]) for name, build in parts}
            )
        case TupleOf(items):
            return _tuple([f"f{i}" for i in range(len(items))], items)
        case ListOf(item):
            build_item = builder(item)
            return None if build_item is None else lambda value: list(map(build_item, value))
        case OptionalOf(item):
            some = builder(item)
            return None if some is None else lambda value: None if value is None else some(value)
        case _:
            return None


def _tuple(names: Sequence[str], items: Sequence[RecordType]) -> _Build:
    parts = [(name, builder(of)) for name, of in zip(names, items, strict=True)]
    return lambda value: tuple(value[name] if build is None else build(value[name]) for name, build in parts)
