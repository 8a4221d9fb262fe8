"""docs/asyncapi.yaml is current, valid AsyncAPI 3, and has the schema of every event.

`asyncapi-3.0.0.json.gz` is the JSON schema of the specification, from its authors' npm package @asyncapi/specs 6.11.1
(Apache-2.0).
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
import pytest
import yaml
from jsonschema import Draft7Validator

from tailrace.schemas import avro
from tailrace.schemas.catalog import EVENTS
from tailrace.services.log.topic_validation import (
    TopicSettings,
    find_heartbeats_faults,
    find_log_faults,
    find_submissions_faults,
)
from tailrace.services.reference import asyncapi

SPECIFICATION = Path(__file__).parent / "asyncapi-3.0.0.json.gz"
FINDERS = {
    "log": find_log_faults,
    "submissions": find_submissions_faults,
    "heartbeats": find_heartbeats_faults,
}


@cache
def document() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(asyncapi.text())
    return loaded


def test_file_matches_schemas_and_topics(capsys: pytest.CaptureFixture[str]) -> None:
    assert asyncapi.main(["--check"]) == 0, capsys.readouterr().err


def test_document_is_valid() -> None:
    specification = json.loads(gzip.decompress(SPECIFICATION.read_bytes()))
    errors = Draft7Validator(specification).iter_errors(document())
    assert [f"{error.json_path}: {error.message[:200]}" for error in errors] == []


def test_invalid_document_is_detected() -> None:
    specification = json.loads(gzip.decompress(SPECIFICATION.read_bytes()))
    without_action = {**document(), "operations": {"print": {"channel": {"$ref": "#/channels/jobOutput"}}}}
    assert not Draft7Validator(specification).is_valid(without_action)


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_message_has_schema_of_event(name: str) -> None:
    """In one piece: what a program parses from the file has the fingerprint that writers use."""
    message = document()["components"]["messages"][name.partition(".")[2]]
    schema = message["payload"]["schema"]
    assert avro.fingerprint_of(schema) == avro.fingerprint(name)
    fastavro.parse_schema(schema)


def test_every_event_is_in_a_channel_and_every_reference_exists() -> None:
    messages = set(document()["components"]["messages"])
    referred = {
        each["$ref"].removeprefix("#/components/messages/")
        for channel in document()["channels"].values()
        for each in channel["messages"].values()
    }
    assert referred == messages
    operations = {each["channel"]["$ref"] for each in document()["operations"].values()}
    assert operations == {f"#/channels/{name}" for name in document()["channels"]}


@pytest.mark.parametrize("name", sorted(FINDERS))
def test_topic_created_as_described_fits(name: str) -> None:
    channel = document()["channels"][name]
    binding = channel["bindings"]["kafka"]
    given = {**binding["topicConfiguration"]}
    given["cleanup.policy"] = ",".join(given["cleanup.policy"])
    settings = TopicSettings(binding["partitions"], 3, 3, {key: str(value) for key, value in given.items()})
    assert list(FINDERS[name](channel["address"], settings)) == []
