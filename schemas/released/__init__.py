"""The schemas of the events of earlier releases.

Single-object encoding names a schema only by its fingerprint, and logs are kept for ever: a reader needs every schema
that was ever written with. `<version>.json` has the schemas of a release, as in its `.avsc` files, without docs.
`python -m tailrace.schemas.generate --release VERSION` writes it once, and no later release changes it. The files are
loaded when a fingerprint is not one of this release. Each has the highest feature level that its release knows: all
releases of a level have the same schemas, and allow the same senders (tests/schemas/test_event_schemas.py).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...infra.version import __version__
from .. import avro
from ..feature_level import FEATURE_LEVEL

FOLDER = Path(__file__).parent
_LEFT_OUT = ("doc", "logicalType", "topic", "senders")


class Writer(NamedTuple):
    """A writer's schema: its release, its record, and the schema as fastavro parses it."""

    release: str
    name: str
    schema: Any


def writer(fingerprint: bytes, folder: Path = FOLDER) -> Writer | None:
    """Returns the schema with that fingerprint, of any release in `folder`; None if no release had it."""
    found = _by_fingerprint(folder).get(fingerprint)
    if found is None:
        return None
    release, name = found
    return Writer(release, name, avro.parse(avro.inlined(name, definitions(release, folder))))


def releases(folder: Path = FOLDER) -> list[str]:
    """Returns the versions with stored schemas."""
    return sorted(path.stem for path in folder.glob("*.json"))


def feature_level(release: str, folder: Path = FOLDER) -> int:
    """Returns the highest feature level that a release knows. Raises FileNotFoundError."""
    level: int = _document(release, folder)["feature_level"]
    return level


def first_release_of(level: int, folder: Path = FOLDER) -> str:
    """Returns the first release that knows the feature level. Raises ValueError if there is none."""
    for release in sorted(releases(folder), key=version_key):
        if feature_level(release, folder) == level:
            return release
    raise ValueError(f"no release has feature level {level}")


def version_key(version: str) -> tuple[int, ...]:
    """Returns a key that sorts versions."""
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def since(name: str, field: str | None = None, folder: Path = FOLDER) -> str:
    """Returns the first release with the record or its field; the current version if no release has it yet."""
    for release in sorted(releases(folder), key=version_key):
        schema = definitions(release, folder).get(name)
        if schema is None:
            continue
        if field is None or any(known["name"] == field for known in schema.get("fields", ())):
            return release
    return __version__.partition(".dev")[0]


def definitions(release: str, folder: Path = FOLDER) -> Mapping[str, avro.Schema]:
    """Returns full name -> the schema, with shared types referred to by name. Raises FileNotFoundError."""
    found: dict[str, avro.Schema] = _document(release, folder)["schemas"]
    return found


def senders(release: str, folder: Path = FOLDER) -> Mapping[str, frozenset[str]]:
    """Returns the full name of each event -> the kinds of roles that may send it. Raises FileNotFoundError."""
    found: dict[str, list[str]] = _document(release, folder)["senders"]
    return {name: frozenset(kinds) for name, kinds in found.items()}


def fingerprints(release: str, folder: Path = FOLDER) -> Mapping[str, bytes]:
    """Returns the full name of each message of a topic -> its schema's fingerprint. Raises FileNotFoundError."""
    found: dict[str, str] = _document(release, folder)["fingerprints"]
    return {name: bytes.fromhex(text) for name, text in found.items()}


def text(release: str, schemas: Mapping[str, avro.Schema], level: int = FEATURE_LEVEL) -> str:
    """Returns the content of the file of a release with these schemas, one schema per line. `level`: the highest
    feature level that the release knows."""
    kept = {name: without_docs(schema) for name, schema in schemas.items()}
    alone = filter(avro.stands_alone, kept)
    found = {name: avro.fingerprint_of(avro.inlined(name, kept)).hex() for name in alone}
    parts = [f'"release": {json.dumps(release)}', f'"feature_level": {level}']
    allowed = {name: sorted(schema["senders"]) for name, schema in schemas.items() if "senders" in schema}
    for key, rows in (("fingerprints", found), ("senders", allowed), ("schemas", kept)):
        lines = ",\n".join(
            f"{json.dumps(name)}:{json.dumps(row, separators=(',', ':'))}" for name, row in rows.items()
        )
        parts.append(f'"{key}": {{\n{lines}\n}}')
    return "{" + ",\n".join(parts) + "}\n"


def without_docs(node: Any) -> Any:
    """Returns the schema without parts that change neither the bytes nor how they are read."""
    if isinstance(node, dict):
        return {
            key: value if key == "default" else without_docs(value)
            for key, value in node.items()
            if key not in _LEFT_OUT
        }
    return [without_docs(item) for item in node] if isinstance(node, list) else node


@functools.cache
def _document(release: str, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{release}.json").read_text("utf-8"))
    return found


@functools.cache
def _by_fingerprint(folder: Path) -> Mapping[bytes, tuple[str, str]]:
    """Returns fingerprint -> release, name. If several releases had a schema, any of them is returned."""
    return {
        fingerprint: (release, name)
        for release in releases(folder)
        for name, fingerprint in fingerprints(release, folder).items()
    }
