"""The Avro schemas of the package, as files and parsed.

Every record is one `.avsc` file with its name, in the folder of its namespace. Files refer to shared types by name, so
they are parsed together: types first. Schemas for reading and writing have no logical types: inside the services times
are integers (microseconds since the epoch), and datetimes only in displays. fastavro is loaded with the first schema
that it parses.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

Schema = dict[str, Any]

FOLDER = Path(__file__).parent
_NESTED = frozenset({"type", "items", "values", "fields"})


def files() -> list[Path]:
    """Returns all `.avsc` files: shared types in the order of their dependencies, then the rest by folder and name."""
    every = sorted(FOLDER.glob("*/*.avsc"))
    types = [path for path in every if path.parent.name == "types"]
    return _by_dependency(types) + [path for path in every if path.parent.name != "types"]


@functools.cache
def schemas() -> Mapping[str, Schema]:
    """Returns full name -> the schema as in its file."""
    loaded = {}
    for path in files():
        schema = json.loads(path.read_text("utf-8"))
        loaded[f"{schema['namespace']}.{schema['name']}"] = schema
    return MappingProxyType(loaded)


@functools.cache
def parsed() -> Mapping[str, Any]:
    """Returns full name -> fastavro's parsed schema, references resolved, without logical types."""
    named: dict[str, Any] = {}
    return MappingProxyType({name: parse(copy.deepcopy(schema), named) for name, schema in schemas().items()})


def standalone(name: str) -> Schema:
    """Returns the schema with every referenced type written out at its first use, as registries and clients need it."""
    return inlined(name, schemas())


def inlined(name: str, definitions: Mapping[str, Schema]) -> Schema:
    """Like `standalone`, for a type among any others."""
    schema: Schema = _inline(definitions[name], {name}, definitions)
    return schema


def written_out(names: Iterable[str]) -> list[Schema]:
    """Returns the schemas for one document: each type is written out at its first use."""
    seen: set[str] = set()
    return [_inline(name, seen, schemas()) for name in names]


@functools.cache
def fingerprint(name: str) -> bytes:
    """Returns the CRC-64-AVRO of the schema's parsing canonical form, 8 bytes little-endian (Avro, single-object
    encoding)."""
    # Cached: each reader of a log needs the fingerprints of all events, and computing them takes longer than reading
    # a small log.
    from .fingerprints import FINGERPRINTS

    known = FINGERPRINTS.get(name)
    return fingerprint_of(standalone(name)) if known is None else bytes.fromhex(known)


def fingerprint_of(schema: Schema) -> bytes:
    """Returns the fingerprint of any standalone schema; see `fingerprint`."""
    import fastavro.schema

    canonical = fastavro.schema.to_parsing_canonical_form(schema)
    return bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))


@functools.cache
def fingerprints_with_logical_types() -> Mapping[bytes, str]:
    """Returns fingerprint -> the event, for writers that keep `logicalType` in the canonical form.

    Avro's specification strips it; some libraries, such as Go's hamba/avro, do not.
    """
    import fastavro.schema

    alone = filter(stands_alone, schemas())
    texts = {name: canonical_with_logical_types(standalone(name)) for name in alone}
    return MappingProxyType(
        {
            bytes.fromhex(fastavro.schema.fingerprint(text, "CRC-64-AVRO")): name
            for name, text in texts.items()
        }
    )


def canonical_with_logical_types(node: Any, namespace: str = "") -> str:
    """Returns the parsing canonical form of a standalone schema, with the logical types of primitive types kept."""
    if isinstance(node, str):
        return json.dumps(node)
    if isinstance(node, list):
        return f"[{','.join(canonical_with_logical_types(branch, namespace) for branch in node)}]"
    kind, name = node["type"], node.get("name", "")
    if not isinstance(kind, str):
        return canonical_with_logical_types(kind, namespace)
    match kind:
        case "array" | "map":
            of = "items" if kind == "array" else "values"
            return f'{{"type":"{kind}","{of}":{canonical_with_logical_types(node[of], namespace)}}}'
        case "record" | "enum":
            namespace = node.get("namespace", namespace)
            full = name if "." in name or not namespace else f"{namespace}.{name}"
            if kind == "enum":
                symbols = ",".join(map(json.dumps, node["symbols"]))
                return f'{{"name":"{full}","type":"enum","symbols":[{symbols}]}}'
            fields = [
                f'{{"name":"{field["name"]}","type":{canonical_with_logical_types(field["type"], namespace)}}}'
                for field in node["fields"]
            ]
            return f'{{"name":"{full}","type":"record","fields":[{",".join(fields)}]}}'
        case _ if "logicalType" in node:
            return f'{{"type":"{kind}","logicalType":"{node["logicalType"]}"}}'
        case _:
            return json.dumps(kind)


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


def stands_alone(name: str) -> bool:
    """Whether records of this name are messages of a topic; otherwise it is a type that others share."""
    return name.count(".") > 1


def parse(schema: Schema, named: dict[str, Any] | None = None) -> Any:
    """Parses a schema for reading with fastavro; it is changed as by `without_logical_types`.

    It stands alone, or refers to those in `named`, to which it is added. Raises fastavro's errors if it is invalid.
    """
    import fastavro.schema

    return fastavro.schema.parse_schema(without_logical_types(schema), named_schemas=named)


def without_logical_types(node: Any) -> Any:
    """Removes logical types from the schema in place: times become plain integers. Returns the same schema."""
    if isinstance(node, dict):
        node.pop("logicalType", None)
        for value in node.values():
            without_logical_types(value)
    elif isinstance(node, list):
        for value in node:
            without_logical_types(value)
    return node


def _inline(node: Any, seen: set[str], definitions: Mapping[str, Schema]) -> Any:
    """Returns a copy of the schema, with every type that is not in `seen` written out."""
    match node:
        case str() if node.startswith("tailrace.") and node not in seen:
            seen.add(node)
            return _inline(definitions[node], seen, definitions)
        case list():
            return [_inline(branch, seen, definitions) for branch in node]
        case dict():
            return {
                key: _inline(value, seen, definitions) if key in _NESTED else copy.copy(value)
                for key, value in node.items()
            }
        case _:
            return node
