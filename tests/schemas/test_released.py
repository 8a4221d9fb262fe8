"""The schemas of all releases are shipped, and their logs were written with them.

tests/services/test_earlier_releases.py reads these logs.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest

import tailrace
from tailrace.schemas import avro, generate, released
from tailrace.schemas.catalog import EVENTS
from tailrace.schemas.dead_letters import DeadLetter

GOLDEN = Path(__file__).parents[1] / "golden"
RELEASES = released.releases()


def test_schemas_exist_for_every_release_with_golden_logs() -> None:
    assert {path.name for path in GOLDEN.iterdir()} <= set(RELEASES)


@pytest.mark.parametrize("version", sorted(path.name for path in GOLDEN.iterdir()))
def test_golden_logs_have_schemas_of_their_release(version: str) -> None:
    known = released.fingerprints(version)
    checked = 0
    for path in (GOLDEN / version).glob("*.avro"):
        result = schemas_of(path)
        names = known.keys() & result.keys()
        assert [
            name for name in names if avro.fingerprint_of(avro.inlined(name, result)) != known[name]
        ] == []
        checked += len(names)
    assert checked


@pytest.mark.parametrize("release", RELEASES)
def test_stored_fingerprints_match_schemas(release: str) -> None:
    definitions = released.definitions(release)
    known = released.fingerprints(release)
    assert set(known) == {name for name in definitions if name.count(".") == 2}
    for name, fingerprint in known.items():
        assert avro.fingerprint_of(avro.inlined(name, definitions)) == fingerprint
        writer = released.writer(fingerprint)
        assert writer is not None
        assert writer.name == name
        assert writer.schema["name"] == name


def test_writer_writes_every_record_of_release(tmp_path: Path) -> None:
    (tmp_path / "7.json").write_text(released.text("7", avro.schemas()), "utf-8")
    assert released.releases(tmp_path) == ["7"]
    assert set(released.definitions("7", tmp_path)) == set(avro.schemas())
    expected = {name: avro.fingerprint(name) for name in (*EVENTS, DeadLetter.AVRO_NAME)}
    assert released.fingerprints("7", tmp_path) == expected


def test_writer_rejects_release_other_than_current(capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in released.FOLDER.glob("*.json")}
    for versions in (["0.0.1"], [], [tailrace.__version__, "0.0.1"]):
        assert generate.main(["--release", *versions]) == 2
        assert tailrace.__version__ in capsys.readouterr().err
    assert {path: path.read_bytes() for path in released.FOLDER.glob("*.json")} == before


@functools.cache
def schemas_in(text: str) -> dict[str, Any]:
    """Returns the named types of an exported log, by their full names."""
    (event,) = (field["type"] for field in json.loads(text)["fields"] if field["name"] == "event")
    result: dict[str, Any] = {}
    by_reference(event, result)
    return result


def schemas_of(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return schemas_in(fastavro.reader(file).metadata["avro.schema"])


def by_reference(node: Any, found: dict[str, Any]) -> Any:
    """Returns the schema with a reference in place of each named type, which is put into `found`."""
    if isinstance(node, list):
        return [by_reference(item, found) for item in node]
    if not isinstance(node, dict):
        return node
    nested = ("type", "items", "values", "fields")
    out = {key: by_reference(value, found) if key in nested else value for key, value in node.items()}
    if "name" not in node or node["type"] not in ("record", "enum"):
        return out
    name = f"{node['namespace']}.{node['name']}"
    found[name] = out
    return name
