"""The `.avsc` files are the contract: complete, documented, and what the Python classes say."""

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


def test_the_generated_classes_are_what_the_files_say() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tailrace.schemas.generate", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_class_that_drifted_is_named(monkeypatch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    stale = {avro.FOLDER / "client" / "__init__.py": "other"}
    monkeypatch.setattr(generate, "sources", lambda: stale)
    assert generate.main(["--check"]) == 1
    assert "schemas/client/__init__.py" in capsys.readouterr().out
    assert (avro.FOLDER / "client" / "__init__.py").read_text("utf-8") != "other"


@pytest.mark.parametrize("name", RECORDS)
def test_every_record_and_field_says_its_meaning_and_its_first_release(name: str) -> None:
    schema = avro.schemas()[name]
    docs = {None: schema["doc"], **{field["name"]: field["doc"] for field in schema.get("fields", [])}}
    for field, doc in docs.items():
        meaning, _, release = doc.rpartition(" Since ")
        assert release == f"{released.since(name, field)}.", f"{name}.{field}: {doc}"
        assert meaning.endswith("."), f"{name}.{field}: {doc}"
        assert len(meaning.split()) > 1, f"{name}.{field}: {doc}"


def test_a_field_of_no_release_yet_has_the_version_at_hand() -> None:
    assert released.since("tailrace.dispatcher.CancelJob") == "0.1.0"
    assert released.since("tailrace.dispatcher.CancelJob", "keep_checkpoints") != "0.1.0"
    assert released.since("tailrace.client.NoSuchEvent") == tailrace.__version__.partition(".dev")[0]


@pytest.mark.parametrize("name", RECORDS)
def test_a_file_is_called_after_its_record_and_lies_in_the_folder_of_its_namespace(name: str) -> None:
    folder = "types" if name.count(".") == 1 else name.split(".")[1]
    assert (avro.FOLDER / folder / f"{name.rpartition('.')[2]}.avsc").is_file()


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_every_event_begins_with_the_header(name: str) -> None:
    assert avro.schemas()[name]["fields"][0]["name"] == "header"
    assert avro.schemas()[name]["fields"][0]["type"] == "tailrace.Header"


def test_everything_that_is_no_shared_type_is_an_event_or_a_dead_letter() -> None:
    namespaced = {name for name in RECORDS if name.count(".") == 2}
    assert namespaced == set(EVENTS) | {DeadLetter.AVRO_NAME}
    assert {name.split(".")[1] for name in EVENTS} == ROLES


@pytest.mark.parametrize("name", RECORDS)
def test_a_standalone_schema_needs_no_other_file(name: str) -> None:
    fastavro.parse_schema(avro.standalone(name))


def test_no_two_events_have_the_same_fingerprint() -> None:
    assert len({avro.fingerprint(name) for name in EVENTS}) == len(EVENTS)


def test_fingerprints_are_those_of_the_avro_specification() -> None:
    # Avro specification, "Schema Fingerprints": the CRC-64-AVRO of "null", which is little-endian in a header.
    assert avro.fingerprint_of("null") == (0x63DD24E7CC258F8A).to_bytes(8, "little")  # type: ignore[arg-type]


def test_docs_defaults_and_logical_types_do_not_change_a_fingerprint() -> None:
    name = "tailrace.Header"
    plain = avro.without_logical_types(avro.standalone(name))
    for field in plain["fields"]:
        field["doc"] = "another"
    assert avro.fingerprint_of(plain) == avro.fingerprint(name)


@pytest.mark.parametrize("name", sorted([*EVENTS, DeadLetter.AVRO_NAME]))
def test_a_fingerprint_that_is_known_is_that_of_the_schema(name: str) -> None:
    assert avro.fingerprint(name) == avro.fingerprint_of(avro.standalone(name))
