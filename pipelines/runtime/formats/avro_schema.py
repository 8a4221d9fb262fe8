"""Avro schemas: parsed, fingerprinted, and derived from record types if none is given."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import fastavro.schema

from ...types import ClassOf, ListOf, OptionalOf, RecordType, Scalar, TupleOf
from ..common.failures import TaskError

_PRIMITIVES: Final = {"str": "string", "int": "long", "float": "double", "bool": "boolean", "bytes": "bytes"}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class Schema:
    """A schema as JSON and as parsed by fastavro."""

    def __init__(self, form: Any, named: dict[str, Any] | None = None) -> None:
        """Raises fastavro's SchemaParseException and UnknownType, which have no common base class but Exception."""
        self.form = form
        self.parsed: Any = fastavro.schema.parse_schema(form, named_schemas={} if named is None else named)

    def __str__(self) -> str:
        return json.dumps(self.form)

    def fingerprint(self) -> bytes:
        """CRC-64-AVRO of the parsing canonical form, 8 bytes little-endian (Avro, single-object encoding)."""
        canonical = fastavro.schema.to_parsing_canonical_form(self.form)
        return bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))


def given(text: str) -> Schema:
    """Parses the schema that a program gives as JSON text. Raises TaskError."""
    try:
        return Schema(json.loads(text))
    except Exception as error:
        raise TaskError(f"the Avro schema {text[:200]!r} is invalid: {error}; correct it") from error


def derive_schema(record_type: RecordType) -> Schema:
    """Returns the schema of a record type: a record for a type with fields, f0, f1, ... in tuples, a plain type for a
    scalar.

    Raises TaskError if a part of it has no declared type.
    """
    return Schema(_form(record_type, {}, str(record_type)))


def _form(of: RecordType, seen: dict[str, ClassOf], whole: str) -> Any:
    match of:
        case Scalar(kind):
            return _PRIMITIVES[kind]
        case OptionalOf(item):
            return ["null", _form(item, seen, whole)]
        case ListOf(item):
            return {"type": "array", "items": _form(item, seen, whole)}
        case TupleOf():
            # Tuples have no name of their own, and one schema must not use a name for two records.
            name = f"Tuple{len(seen)}" if seen else "Tuple"
            seen[name] = ClassOf(name, "named_tuple", of.columns(), b"")
            return _record(name, of.columns(), seen, whole)
        case ClassOf(name):
            if seen.get(name) == of:
                return name
            if name in seen or not _NAME.match(name):
                raise TaskError(
                    f"no Avro schema follows from {whole}: {name!r} names two classes, or is not a valid name in Avro;"
                    " give a schema"
                )
            seen[name] = of
            return _record(name, of.fields, seen, whole)
        case _:
            raise TaskError(
                f"no Avro schema follows from records of type {whole}, which is not completely declared:"
                " give a schema, or declare the output_type of the operator before it"
            )


def _record(
    name: str, columns: tuple[tuple[str, RecordType], ...], seen: dict[str, ClassOf], whole: str
) -> Any:
    fields = []
    for field, of in columns:
        form: dict[str, Any] = {"name": field, "type": _form(of, seen, whole)}
        if isinstance(of, OptionalOf):
            form["default"] = None
        fields.append(form)
    return {"type": "record", "name": name, "fields": fields}
