"""The Avro schemas of the package, as files and parsed.

Every record is one `.avsc` file named after it, in the folder of its namespace. Files refer to shared types by
name, so they are parsed together: types first. What is used for reading and writing has its logical types taken
away: times are integers (microseconds since the epoch) inside the services, and datetimes only where people look.
fastavro is loaded with the first schema that it has to parse.
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
    return MappingProxyType({name: parse(copy.deepcopy(schema), named) for name, schema in schemas().items()})


def standalone(name: str) -> Schema:
    """The schema with every referenced type written out where it is first used: what a registry or a client needs."""
    return inlined(name, schemas())


def inlined(name: str, definitions: Mapping[str, Schema]) -> Schema:
    """As `standalone`, of a type among any others."""
    schema: Schema = _inline(definitions[name], {name}, definitions)
    return schema


def written_out(names: Iterable[str]) -> list[Schema]:
    """The schemas for a place where they stand together: each type is written out where it is first used."""
    seen: set[str] = set()
    return [_inline(name, seen, schemas()) for name in names]


@functools.cache
def fingerprint(name: str) -> bytes:
    """CRC-64-AVRO of the schema's parsing canonical form, 8 bytes little-endian (Avro, single-object encoding)."""
    # Those of all events are wanted by whoever reads a log, and to compute them takes longer than to read a small one.
    from .fingerprints import FINGERPRINTS

    known = FINGERPRINTS.get(name)
    return fingerprint_of(standalone(name)) if known is None else bytes.fromhex(known)


def fingerprint_of(schema: Schema) -> bytes:
    """The fingerprint of any schema that stands alone; see `fingerprint`."""
    import fastavro.schema

    canonical = fastavro.schema.to_parsing_canonical_form(schema)
    return bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))


@functools.cache
def fingerprints_with_logical_types() -> Mapping[bytes, str]:
    """Fingerprint -> the event whose schema has it where a writer keeps `logicalType` in the canonical form.

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
    """The parsing canonical form of a schema that stands alone, with the logical types of primitive types kept."""
    if isinstance(node, str):
        return json.dumps(node)
    if isinstance(node, list):
        return f"[{','.join(canonical_with_logical_types(each, namespace) for each in node)}]"
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
                f'{{"name":"{each["name"]}","type":{canonical_with_logical_types(each["type"], namespace)}}}'
                for each in node["fields"]
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
    """Whether what is called so stands in a topic by itself; else it is a type that others share."""
    return name.count(".") > 1


def parse(schema: Schema, named: dict[str, Any] | None = None) -> Any:
    """A schema as fastavro reads with it; it is changed as by `without_logical_types`.

    It stands alone, or refers to those in `named`, to which it is added. Raises what fastavro does where it can't be
    used.
    """
    import fastavro.schema

    return fastavro.schema.parse_schema(without_logical_types(schema), named_schemas=named)


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


def _inline(node: Any, seen: set[str], definitions: Mapping[str, Schema]) -> Any:
    """A copy of the schema, with every type that is not in `seen` written out."""
    match node:
        case str() if node.startswith("tailrace.") and node not in seen:
            seen.add(node)
            return _inline(definitions[node], seen, definitions)
        case list():
            return [_inline(each, seen, definitions) for each in node]
        case dict():
            return {
                key: _inline(value, seen, definitions) if key in _NESTED else copy.copy(value)
                for key, value in node.items()
            }
        case _:
            return node
