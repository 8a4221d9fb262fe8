"""Describes the types of states as data, so that a snapshot can carry them: which fields it has, and their types.

A type is a text for a plain type ("int"), or a list whose first item says what it is: ["struct", name], ["enum", name],
["|", types of a union ...], [container, types of its arguments ...].
"""

from __future__ import annotations

import types
import typing
from collections.abc import Hashable, Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from .encoding import field_default

Type = Any
"""A text or a list, as above."""
STRUCT: Final = "struct"
ENUM: Final = "enum"
UNION: Final = "|"
MAP: Final = "Map"
_PLAIN = frozenset({bool, int, float, str, bytes, Hashable})


class FieldDescription(msgspec.Struct, frozen=True, array_like=True):
    """A field of a struct. `default`: the bytes of its default; None if it has none."""

    name: str
    type: Type
    default: bytes | None


class StructDescription(msgspec.Struct, frozen=True, array_like=True):
    """A struct. `tag`: what tells it apart in a union."""

    tag: str | int | None
    fields: tuple[FieldDescription, ...]


class StateTypes(msgspec.Struct, frozen=True):
    """The types of all states. `roots`: kind -> type of its states."""

    roots: dict[str, Type] = {}
    structs: dict[str, StructDescription] = {}
    enums: dict[str, tuple[Any, ...]] = {}


def describe(states: Mapping[str, Any]) -> StateTypes:
    """Returns the description of types by kind. Raises TypeError for a type that a state cannot have."""
    described = StateTypes({}, {}, {})
    for kind in sorted(states):
        described.roots[kind] = _describe(states[kind], described)
    return described


def _describe(wanted: Any, seen: StateTypes) -> Type:
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        return [UNION, *sorted((_describe(argument, seen) for argument in arguments), key=repr)]
    kind = wanted if origin is None else origin
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _describe_struct(kind, wanted, [_describe(argument, seen) for argument in arguments], seen)
    if origin is not None:
        found = ["..." if argument is ... else _describe(argument, seen) for argument in arguments]
        return [origin.__name__, *found]
    if wanted is None or wanted is type(None):
        return "None"
    if not isinstance(wanted, type):
        raise TypeError(f"{wanted!r} is not a type of a state")
    if issubclass(wanted, Enum):
        seen.enums[wanted.__name__] = tuple(member.value for member in wanted)
        return [ENUM, wanted.__name__]
    if wanted not in _PLAIN:
        raise TypeError(f"{wanted.__name__} is not a type of a state")
    return wanted.__name__


def _describe_struct(
    kind: type[msgspec.Struct], wanted: Any, arguments: list[Type], seen: StateTypes
) -> Type:
    """`wanted` is the struct, or a generic struct with these arguments."""
    name = f"{kind.__module__.partition('.')[2]}.{kind.__name__}{arguments or ''}"
    if name not in seen.structs:
        tag = kind.__struct_config__.tag
        # Entered first: a struct may contain itself.
        seen.structs[name] = StructDescription(tag, ())
        fields = (
            FieldDescription(field.encode_name, _describe(field.type, seen), field_default(field))
            for field in msgspec.structs.fields(wanted)
        )
        seen.structs[name] = StructDescription(tag, tuple(fields))
    return [STRUCT, name]
