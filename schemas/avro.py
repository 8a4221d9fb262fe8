"""The Avro schemas of the package, as files and parsed.

Every record is one `.avsc` file named after it, in the folder of its namespace. Files refer to shared types by
name, so they are parsed together: types first. What is used for reading and writing has its logical types taken
away: times are integers (microseconds since the epoch) inside the services, and datetimes only where people look.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import fastavro.schema

Schema = dict[str, Any]

FOLDER = Path(__file__).parent


def files() -> list[Path]:
    """All `.avsc` files: shared types in the order of their dependencies, then the rest by folder and name."""
    every = sorted(FOLDER.glob("*/*.avsc"))
    types = [path for path in every if path.parent.name == "types"]
    return _by_dependency(types) + [path for path in every if path.parent.name != "types"]


@functools.cache
def schemas() -> Mapping[str, Schema]:
    """Full name -> the schema as its file has it."""
    loaded = {}
    for path in files():
        schema = json.loads(path.read_text("utf-8"))
        loaded[f"{schema['namespace']}.{schema['name']}"] = schema
    return MappingProxyType(loaded)


@functools.cache
def parsed() -> Mapping[str, Any]:
    """Full name -> fastavro's parsed schema, references resolved, without logical types."""
    named: dict[str, Any] = {}
    return MappingProxyType(
        {
            name: fastavro.schema.parse_schema(
                without_logical_types(copy.deepcopy(schema)), named_schemas=named
            )
            for name, schema in schemas().items()
        }
    )


def standalone(name: str) -> Schema:
    """The schema with every referenced type written out where it is first used: what a registry or a client needs."""
    schema: Schema = _inline(copy.deepcopy(schemas()[name]), set())
    return schema


@functools.cache
def fingerprint(name: str) -> bytes:
    """CRC-64-AVRO of the schema's parsing canonical form, 8 bytes little-endian (Avro, single-object encoding)."""
    return fingerprint_of(standalone(name))


def fingerprint_of(schema: Schema) -> bytes:
    """The fingerprint of any schema that stands alone; see `fingerprint`."""
    canonical = fastavro.schema.to_parsing_canonical_form(schema)
    return bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, str) and node.startswith("tailrace."):
        yield node
    elif isinstance(node, list):
        for item in node:
            yield from _references(item)
    elif isinstance(node, dict):
        for key in ("type", "items", "values", "fields"):
            if key in node:
                yield from _references(node[key])


def _by_dependency(paths: list[Path]) -> list[Path]:
    needs = {path.stem: set(_references(json.loads(path.read_text("utf-8")))) for path in paths}
    ordered: list[Path] = []
    done: set[str] = set()
    waiting = list(paths)
    while waiting:
        ready = [path for path in waiting if needs[path.stem] <= done]
        if not ready:
            raise ValueError(
                f"schemas/types refer to each other in a circle: {sorted(p.stem for p in waiting)}"
            )
        ordered += ready
        done |= {f"tailrace.{path.stem}" for path in ready}
        waiting = [path for path in waiting if path not in ready]
    return ordered


def without_logical_types(node: Any) -> Any:
    """The same schema, changed in place: times become plain integers."""
    if isinstance(node, dict):
        node.pop("logicalType", None)
        for value in node.values():
            without_logical_types(value)
    elif isinstance(node, list):
        for value in node:
            without_logical_types(value)
    return node


def _inline(node: Any, seen: set[str]) -> Any:
    if isinstance(node, str):
        if not node.startswith("tailrace.") or node in seen:
            return node
        seen.add(node)
        return _inline(copy.deepcopy(schemas()[node]), seen)
    if isinstance(node, list):
        return [_inline(item, seen) for item in node]
    if isinstance(node, dict):
        for key in ("type", "items", "values"):
            if key in node and key != "symbols":
                node[key] = (
                    node[key] if node[key] in ("record", "enum", "array", "map") else _inline(node[key], seen)
                )
        if "fields" in node:
            node["fields"] = [_inline(item, seen) for item in node["fields"]]
    return node
