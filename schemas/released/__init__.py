"""The schemas that events were written with by the releases so far.

Single-object encoding names a schema by its fingerprint only, and logs are kept for ever: whoever reads one needs every
schema that ever wrote into it. `<version>.json` has those of a release, as that release's `.avsc` files had them, less
their docs; `python -m tailrace.schemas.generate --release VERSION` writes it, once, and no later release changes it.
They are loaded when a fingerprint turns up that is none of this release's.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ... import __version__
from .. import avro

FOLDER = Path(__file__).parent
_LEFT_OUT = ("doc", "logicalType", "topic", "senders")


class Writer(NamedTuple):
    """A schema that a record was written with: whose, which record's, and the schema as fastavro parses it."""

    release: str
    name: str
    schema: Any


def writer(fingerprint: bytes, folder: Path = FOLDER) -> Writer | None:
    """The schema with that fingerprint, of any release in `folder`; None where no release had it."""
    found = _by_fingerprint(folder).get(fingerprint)
    if found is None:
        return None
    release, name = found
    return Writer(release, name, avro.parse(avro.inlined(name, definitions(release, folder))))


def releases(folder: Path = FOLDER) -> list[str]:
    """The versions whose schemas are there."""
    return sorted(path.stem for path in folder.glob("*.json"))


def since(name: str, field: str | None = None, folder: Path = FOLDER) -> str:
    """The first release that has the record, or its field; the version at hand where no release has it yet."""
    for release in sorted(releases(folder), key=lambda version: [int(part) for part in version.split(".")]):
        schema = definitions(release, folder).get(name)
        if schema is None:
            continue
        if field is None or any(known["name"] == field for known in schema.get("fields", ())):
            return release
    return __version__.partition(".dev")[0]


def definitions(release: str, folder: Path = FOLDER) -> Mapping[str, avro.Schema]:
    """Full name -> the schema, shared types referred to by name. Raises FileNotFoundError."""
    found: dict[str, avro.Schema] = _document(release, folder)["schemas"]
    return found


def fingerprints(release: str, folder: Path = FOLDER) -> Mapping[str, bytes]:
    """Full name of what stands in a topic by itself -> its schema's fingerprint. Raises FileNotFoundError."""
    found: dict[str, str] = _document(release, folder)["fingerprints"]
    return {name: bytes.fromhex(text) for name, text in found.items()}


def text(release: str, schemas: Mapping[str, avro.Schema]) -> str:
    """What the file of a release holds whose schemas are these: a line each."""
    kept = {name: _plain(schema) for name, schema in schemas.items()}
    alone = filter(avro.stands_alone, kept)
    found = {name: avro.fingerprint_of(avro.inlined(name, kept)).hex() for name in alone}
    parts = [f'"release": {json.dumps(release)}']
    for key, rows in (("fingerprints", found), ("schemas", kept)):
        lines = ",\n".join(
            f"{json.dumps(name)}:{json.dumps(row, separators=(',', ':'))}" for name, row in rows.items()
        )
        parts.append(f'"{key}": {{\n{lines}\n}}')
    return "{" + ",\n".join(parts) + "}\n"


def _plain(node: Any) -> Any:
    """The schema without what changes nothing about the bytes, nor about how they are read."""
    if isinstance(node, dict):
        return {
            key: value if key == "default" else _plain(value)
            for key, value in node.items()
            if key not in _LEFT_OUT
        }
    return [_plain(each) for each in node] if isinstance(node, list) else node


@functools.cache
def _document(release: str, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{release}.json").read_text("utf-8"))
    return found


@functools.cache
def _by_fingerprint(folder: Path) -> Mapping[bytes, tuple[str, str]]:
    """Fingerprint -> release, name. Where several releases had a schema, which of them is meant is all the same."""
    return {
        fingerprint: (release, name)
        for release in releases(folder)
        for name, fingerprint in fingerprints(release, folder).items()
    }
