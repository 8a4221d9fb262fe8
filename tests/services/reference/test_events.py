"""docs/events.md has every event, with its senders and handlers."""

from __future__ import annotations

import inspect
import sys
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tailrace.schemas import avro
from tailrace.schemas.catalog import EVENTS
from tailrace.services.reference import events

GOLDEN = Path(__file__).parents[2] / "golden"
KINDS = set(events.STEPS)
NOT_FOLDED = {"tailrace.everyone.SnapshotTaken", "tailrace.everyone.StateHash"}


def test_page_matches_schemas_and_step_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert events.main(["--check"]) == 0, capsys.readouterr().err


def test_outdated_page_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(events, "text", lambda: "other")
    assert events.main(["--check"]) == 1
    assert capsys.readouterr().err == "docs/events.md is out of date: run `make events`\n"
    assert events.PATH.read_text("utf-8") != "other"


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_event_has_section_with_fields_and_handlers(name: str) -> None:
    page = events.text()
    section = page.partition(f"\n### {name.partition('.')[2]}\n")[2].partition("\n#")[0]
    for field in avro.schemas()[name]["fields"][1:]:
        assert f"\n| `{field['name']}` | " in section
    for _, handler in events.handlers(name):
        module = handler.__module__.partition(".")[2]
        assert f"`{module}.{events.function_name(name, handler)}`" in section
        assert hasattr(sys.modules[handler.__module__], events.function_name(name, handler))
        assert (
            f"](../{Path(inspect.getfile(sys.modules[handler.__module__])).relative_to(events.ROOT)})"
            in section
        )


def test_handler_with_several_names_is_shown_by_name_of_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "on_cancel_job", shared, raising=False)
    monkeypatch.setattr(shared, "__module__", events.__name__)
    assert events.function_name("tailrace.dispatcher.CancelJob", shared) == "on_cancel_job"
    assert events.function_name("tailrace.dispatcher.SubmitJob", shared) == "shared"


def test_every_link_within_page_has_heading() -> None:
    page = events.text()
    anchors = {
        line.lstrip("# ").lower().replace(".", "").replace(" ", "-")
        for line in page.splitlines()
        if line.startswith("#")
    }
    links = {part.partition(")")[0] for part in page.split("](#")[1:]}
    assert links <= anchors


def test_every_link_to_file_leads_to_file() -> None:
    links = {part.partition(")")[0] for part in events.text().split("](../")[1:]}
    assert {link for link in links if not (events.ROOT / link).is_file()} == set()


ALSO_FOLDED = {"tailrace.dispatcher.JobsForgotten": {"job_master"}}
"""Events that concern other roles than the sender and the recipient."""


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_senders_and_receiver_have_handlers(name: str) -> None:
    """The receiver folds what it receives, and a role folds what it sends: no other role has a step for the event."""
    schema, receiver = avro.schemas()[name], name.split(".")[1]
    results = {kind for kind, _ in events.handlers(name)}
    if schema["topic"] == "heartbeats" or name in NOT_FOLDED:
        assert not results
    elif receiver != "everyone":
        assert results == {receiver, *schema["senders"], *ALSO_FOLDED.get(name, ())} & KINDS


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_only_clients_write_to_submissions_topic(name: str) -> None:
    schema = avro.schemas()[name]
    assert schema["topic"] in {"submissions", "log", "heartbeats"}
    assert (schema["topic"] == "submissions") == (schema["senders"] == ["client"])
    assert schema["senders"] == sorted(set(schema["senders"]))
    assert set(schema["senders"]) <= KINDS | {"client", "rest_server", "standby"}


def test_earlier_releases_have_same_senders_and_receivers() -> None:
    result = addresses_in_golden_logs()
    assert len(result) > 60
    for name, pairs in result.items():
        receiver = name.split(".")[1]
        receivers = {"*" if receiver == "everyone" else receiver}
        senders = avro.schemas()[name]["senders"]
        assert {recipient for _, recipient in pairs} == receivers, name
        assert {sender for sender, _ in pairs} <= set(senders), name


@cache
def addresses_in_golden_logs() -> Mapping[str, set[tuple[str, str]]]:
    """Returns by event the kinds of its senders and recipients."""
    result: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for path in sorted(GOLDEN.glob("*/*.avro")):
        with path.open("rb") as file:
            for entry in fastavro.reader(file, return_record_name=True):
                event: Any = entry["event"]
                if event is not None and event[0] in EVENTS:
                    header = event[1]["header"]
                    result[event[0]].add(
                        (header["sender"].partition("/")[0], header["recipient"].partition("/")[0])
                    )
    return result


def shared() -> None:
    """A handler of two events."""
