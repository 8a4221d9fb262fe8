"""Fingerprints that say which snapshots and hashes are comparable.

A snapshot fits code whose states have the same types: fields, their order, types and defaults, recursively. The value
of
a state also depends on all code that folds. Snapshots therefore carry the fingerprint of the types and are readable by
each release with the same types; hashes carry the fingerprint of the code and are compared between replicas that run
the
same code.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import types
import typing
from collections.abc import Hashable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from .encoding import field_default, state_types

_FORMAT = 1
"""Increase it whenever `encoding` writes the same types differently."""
_ROOT = Path(__file__).parents[2]
_FOLD_PACKAGES = ("services", "schemas", "pipelines/graph", "pipelines/checkpoint")
"""The folders of the code on which states depend; including unrelated files does no harm."""


@functools.cache
def schema_fingerprint() -> str:
    """Returns 8 bytes in hexadecimal: the fingerprint of all state types and their encoding."""
    return fingerprint_types(state_types())


def fingerprint_types(states: Mapping[str, type[msgspec.Struct]]) -> str:
    """As `schema_fingerprint`, for any types by kind."""
    seen: dict[str, str] = {}
    roots = {kind: _describe(state, seen) for kind, state in states.items()}
    text = repr((_FORMAT, sorted(roots.items()), sorted(seen.items())))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@functools.cache
def code_fingerprint() -> str:
    """Returns 8 bytes in hexadecimal: the fingerprint of the sources that fold, and of the Python version."""
    digest = hashlib.blake2b(schema_fingerprint().encode(), digest_size=8)
    digest.update(repr(sys.version_info[:3]).encode())
    for name, source in _sources():
        digest.update(b"%d\0%b\0%d\0%b" % (len(name), name.encode(), len(source), source))
    return digest.hexdigest()


def _sources() -> Iterator[tuple[str, bytes]]:
    for folder in _FOLD_PACKAGES:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            yield path.relative_to(_ROOT).as_posix(), path.read_bytes()


def _describe(wanted: Any, seen: dict[str, str]) -> str:
    """Describes a type as text. `seen` collects the content of structs and enums by name."""
    origin = typing.get_origin(wanted)
    if origin in (types.UnionType, typing.Union):
        return " | ".join(sorted(_describe(argument, seen) for argument in typing.get_args(wanted)))
    if origin is not None:
        arguments = ", ".join(
            "..." if argument is ... else _describe(argument, seen) for argument in typing.get_args(wanted)
        )
        return f"{origin.__name__}[{arguments}]"
    if wanted is None or wanted is type(None):
        return "None"
    if not isinstance(wanted, type):
        raise TypeError(f"{wanted!r} is no type of a state")
    name = wanted.__name__
    if issubclass(wanted, msgspec.Struct):
        name = f"{wanted.__module__.partition('.')[2]}.{name}"
        if name not in seen:
            seen[name] = ""
            hints = typing.get_type_hints(wanted)
            tag = wanted.__struct_config__.tag
            seen[name] = f"{tag}: " + "; ".join(
                f"{field.encode_name}: {_describe(hints[field.name], seen)} = {field_default(field)!r}"
                for field in msgspec.structs.fields(wanted)
            )
    elif issubclass(wanted, Enum):
        seen[name] = ", ".join(repr(member.value) for member in wanted)
    elif wanted not in _PLAIN:
        raise TypeError(f"{name} is no type of a state")
    return name


_PLAIN = frozenset({bool, int, float, str, bytes, Hashable})
