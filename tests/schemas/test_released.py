"""The schemas of the releases so far are shipped, and are those that their logs were written with.

That what they wrote is read is in tests/services/test_earlier_releases.py.
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


def test_there_are_the_schemas_of_every_release_that_left_golden_logs_behind() -> None:
    assert {path.name for path in GOLDEN.iterdir()} <= set(RELEASES)


@pytest.mark.parametrize("version", sorted(path.name for path in GOLDEN.iterdir()))
def test_golden_logs_were_written_with_the_schemas_of_their_release(version: str) -> None:
    known = released.fingerprints(version)
    checked = 0
    for path in (GOLDEN / version).glob("*.avro"):
        found = schemas_of(path)
        names = known.keys() & found.keys()
        assert [each for each in names if avro.fingerprint_of(avro.inlined(each, found)) != known[each]] == []
        checked += len(names)
    assert checked


@pytest.mark.parametrize("release", RELEASES)
def test_fingerprints_are_those_of_the_schemas_beside_them(release: str) -> None:
    definitions = released.definitions(release)
    known = released.fingerprints(release)
    assert set(known) == {name for name in definitions if name.count(".") == 2}
    for name, fingerprint in known.items():
        assert avro.fingerprint_of(avro.inlined(name, definitions)) == fingerprint
        found = released.writer(fingerprint)
        assert found is not None
        assert found.name == name
        assert found.schema["name"] == name


def test_what_is_written_for_a_release_has_every_record_of_it(tmp_path: Path) -> None:
    (tmp_path / "7.json").write_text(released.text("7", avro.schemas()), "utf-8")
    assert released.releases(tmp_path) == ["7"]
    assert set(released.definitions("7", tmp_path)) == set(avro.schemas())
    expected = {name: avro.fingerprint(name) for name in (*EVENTS, DeadLetter.AVRO_NAME)}
    assert released.fingerprints("7", tmp_path) == expected


def test_no_release_but_the_one_at_hand_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in released.FOLDER.glob("*.json")}
    for versions in (["0.0.1"], [], [tailrace.__version__, "0.0.1"]):
        assert generate.main(["--release", *versions]) == 2
        assert tailrace.__version__ in capsys.readouterr().err
    assert {path: path.read_bytes() for path in released.FOLDER.glob("*.json")} == before


@functools.cache
def schemas_in(text: str) -> dict[str, Any]:
    """The named types of an exported log, by their full names."""
    (event,) = (field["type"] for field in json.loads(text)["fields"] if field["name"] == "event")
    found: dict[str, Any] = {}
    by_reference(event, found)
    return found


def schemas_of(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return schemas_in(fastavro.reader(file).metadata["avro.schema"])


def by_reference(node: Any, found: dict[str, Any]) -> Any:
    """The same with every named type referred to by its name, and defined in `found`."""
    if isinstance(node, list):
        return [by_reference(each, found) for each in node]
    if not isinstance(node, dict):
        return node
    nested = ("type", "items", "values", "fields")
    out = {key: by_reference(value, found) if key in nested else value for key, value in node.items()}
    if "name" not in node or node["type"] not in ("record", "enum"):
        return out
    name = f"{node['namespace']}.{node['name']}"
    found[name] = out
    return name
