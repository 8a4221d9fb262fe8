"""Hypothesis strategies for the generated event classes, derived from their types."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from hypothesis import strategies as st

from tailrace.schemas import avro
from tailrace.schemas.body import Body
from tailrace.schemas.catalog import EVENTS
from tailrace.schemas.event import Event
from tailrace.schemas.types import Header

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
# Avro strings are UTF-8, which has no lone surrogates.
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


Known = Mapping[str, st.SearchStrategy[Any]]


def instances(kind: type[Any], known: Known = MappingProxyType({})) -> st.SearchStrategy[Any]:
    """Draws an instance of a generated class. Fields in `known`, at any depth, take their values from there."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    schema = {schema["name"]: schema["type"] for schema in avro.schemas()[kind.AVRO_NAME]["fields"]}
    values = {
        name: known[name] if name in known else _strategy(field.type, schema[name], known)
        for name, field in fields.items()
    }
    return st.builds(kind, **values)


def events() -> st.SearchStrategy[Event]:
    """Draws any event."""
    bodies = st.sampled_from(sorted(EVENTS.values(), key=lambda body: body.AVRO_NAME)).flatmap(
        lambda body: instances(body)
    )
    return st.builds(Event, instances(Header), bodies)


def events_of(kind: type[Body]) -> st.SearchStrategy[Event]:
    """Draws an event of one kind."""
    return st.builds(Event, instances(Header), instances(kind))


def _strategy(kind: Any, schema: Any, known: Known) -> st.SearchStrategy[Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType or origin is typing.Union:
        inner = next(argument for argument in arguments if argument is not type(None))
        return st.none() | _strategy(inner, schema[1], known)
    if isinstance(schema, dict):
        schema = schema.get("items") or schema.get("values") or schema["type"]
    if origin is tuple:
        return st.lists(_strategy(arguments[0], schema, known), max_size=3).map(tuple)
    if origin is Mapping:
        return st.dictionaries(TEXT, _strategy(arguments[1], schema, known), max_size=3)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return st.sampled_from(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return instances(kind, known)
    if kind is int:
        return INT if schema == "int" else LONG
    if kind is float:
        return st.floats(allow_nan=False)
    return {str: TEXT, bytes: st.binary(max_size=20), bool: st.booleans()}[kind]


__all__ = ["events", "events_of", "instances"]
