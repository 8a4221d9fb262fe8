"""The `.avsc` files are the contract: complete, documented, and equal to the Python classes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import fastavro
import pytest

import tailrace
from tailrace.schemas import avro, generate, released
from tailrace.schemas.catalog import EVENTS
from tailrace.schemas.dead_letters import DeadLetter

RECORDS = sorted(avro.schemas())
ROLES = {"client", "dispatcher", "everyone", "job_master", "resource_manager", "task_executor"}


def test_generated_classes_match_schema_files() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tailrace.schemas.generate", "--check"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_generator_names_outdated_class(monkeypatch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    stale = {avro.FOLDER / "client" / "__init__.py": "other"}
    monkeypatch.setattr(generate, "sources", lambda: stale)
    assert generate.main(["--check"]) == 1
    assert "schemas/client/__init__.py" in capsys.readouterr().out
    assert (avro.FOLDER / "client" / "__init__.py").read_text("utf-8") != "other"


@pytest.mark.parametrize("name", RECORDS)
def test_every_record_and_field_has_meaning_and_first_release(name: str) -> None:
    schema = avro.schemas()[name]
    docs = {None: schema["doc"], **{field["name"]: field["doc"] for field in schema.get("fields", [])}}
    for field, doc in docs.items():
        meaning, _, release = doc.rpartition(" Since ")
        assert release == f"{released.since(name, field)}.", f"{name}.{field}: {doc}"
        assert meaning.endswith("."), f"{name}.{field}: {doc}"
        assert len(meaning.split()) > 1, f"{name}.{field}: {doc}"


def test_unreleased_field_has_current_version() -> None:
    assert released.since("tailrace.dispatcher.CancelJob") == "0.1.0"
    current = tailrace.__version__.partition(".dev")[0]
    assert released.since("tailrace.dispatcher.CancelJob", "no_such_field") == current
    assert released.since("tailrace.client.NoSuchEvent") == current


@pytest.mark.parametrize("name", RECORDS)
def test_file_path_is_namespace_and_record_name(name: str) -> None:
    folder = "types" if name.count(".") == 1 else name.split(".")[1]
    assert (avro.FOLDER / folder / f"{name.rpartition('.')[2]}.avsc").is_file()


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_first_field_of_every_event_is_header(name: str) -> None:
    assert avro.schemas()[name]["fields"][0]["name"] == "header"
    assert avro.schemas()[name]["fields"][0]["type"] == "tailrace.Header"


def test_every_record_is_shared_type_event_or_dead_letter() -> None:
    namespaced = {name for name in RECORDS if name.count(".") == 2}
    assert namespaced == set(EVENTS) | {DeadLetter.AVRO_NAME}
    assert {name.split(".")[1] for name in EVENTS} == ROLES


@pytest.mark.parametrize("name", RECORDS)
def test_standalone_schema_has_no_external_reference(name: str) -> None:
    fastavro.parse_schema(avro.standalone(name))


def test_event_fingerprints_are_unique() -> None:
    assert len({avro.fingerprint(name) for name in EVENTS}) == len(EVENTS)


def test_fingerprints_follow_avro_specification() -> None:
    # Avro specification, "Schema Fingerprints": the CRC-64-AVRO of "null", which is little-endian in a header.
    assert avro.fingerprint_of("null") == (0x63DD24E7CC258F8A).to_bytes(8, "little")  # type: ignore[arg-type]


def test_docs_defaults_and_logical_types_do_not_change_fingerprint() -> None:
    name = "tailrace.Header"
    plain = avro.without_logical_types(avro.standalone(name))
    for field in plain["fields"]:
        field["doc"] = "another"
    assert avro.fingerprint_of(plain) == avro.fingerprint(name)


@pytest.mark.parametrize("name", sorted([*EVENTS, DeadLetter.AVRO_NAME]))
def test_known_fingerprint_equals_computed_one(name: str) -> None:
    assert avro.fingerprint(name) == avro.fingerprint_of(avro.standalone(name))
