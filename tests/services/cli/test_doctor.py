"""`cluster doctor` ends, says why it skipped a check, and its exit code says how bad it is."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from tailrace.infra.ports import ReservedPort
from tailrace.schemas.dead_letters import DeadLetter
from tailrace.schemas.dispatcher import CancelJob
from tailrace.schemas.event import Event
from tailrace.schemas.types import Header, Origin
from tailrace.services.cli import main
from tailrace.services.cli.doctor import doctor
from tailrace.services.cli.doctor.clock import report_clock
from tailrace.services.cli.doctor.dead_letters import report_dead_letters
from tailrace.services.cli.doctor.doctor import CHECKS, KAFKA, examine, exit_code
from tailrace.services.cli.doctor.report import Check, Diagnosis, Finding, Health, Report, Subject
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.cli.render.acls import KafkaTool
from tailrace.services.configuration import Configuration
from tailrace.services.log import Codec, LogUnavailable
from tailrace.services.reference.acls import AclScope, PrincipalRole

SUBJECT = Subject(
    Configuration({"cluster.id": "c", "bootstrap.servers": "broker:9092"}),
    PrincipalRole.TASKS,
    AclScope("c"),
    KafkaTool(),
)


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Yields an address at which nobody answers."""
    port = ReservedPort()
    yield f"127.0.0.1:{port.number}"
    port.release()


def run(*checks: Check) -> list[Finding]:
    return examine(SUBJECT, lambda _: None, checks).findings


def fails(_: Subject, report: Report) -> None:
    report.fail("broken", "mend it")


def passes(_: Subject, report: Report) -> None:
    report.ok("fine")


def test_check_whose_need_failed_is_skipped_and_says_so() -> None:
    found = run(Check("a", fails), Check("b", passes, ("a",)), Check("c", passes))
    assert [(each.check, each.health) for each in found] == [
        ("a", Health.FAILED),
        ("b", Health.SKIPPED),
        ("c", Health.OK),
    ]
    assert found[1].message == "not checked, because the check of a failed"


def test_check_of_other_role_is_left_out() -> None:
    assert run(Check("a", fails, roles=frozenset({PrincipalRole.AUDITOR}))) == []


def test_check_that_hangs_ends_with_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def hangs(_: Subject, report: Report) -> None:
        report.ok("so far")
        released.wait()

    monkeypatch.setattr(doctor, "_SLOW_S", 0.05)
    monkeypatch.setattr(doctor, "LONGEST_CHECK_S", 0.05)
    slow: list[str] = []
    try:
        found = examine(SUBJECT, slow.append, (Check("a", hangs), Check("b", passes))).findings
    finally:
        released.set()
    assert [each.health for each in found] == [Health.OK, Health.FAILED, Health.OK]
    assert "did not end within" in found[1].message
    assert slow == ["a"]


@pytest.mark.parametrize(
    "error",
    [
        LogUnavailable("c.log\ncan't be read"),
        KafkaException(KafkaError(KafkaError._TRANSPORT)),
        TimeoutError(),
    ],
)
def test_expected_error_of_check_is_fault_in_one_line(error: Exception) -> None:
    def raises(_: Subject, _report: Report) -> None:
        raise error

    (found,) = run(Check("a", raises))
    assert found.health is Health.FAILED
    assert "\n" not in found.message


def test_bug_in_check_is_raised() -> None:
    def raises(_: Subject, _report: Report) -> None:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        run(Check("a", raises))


def test_exit_code_tells_unreachable_kafka_from_other_faults() -> None:
    def code(*failed: str) -> ExitCode:
        findings = [Finding(name, Health.FAILED, "") for name in failed]
        findings.append(Finding("acls", Health.WARNING, ""))
        return exit_code(Diagnosis(cluster_id="c", role=PrincipalRole.TASKS, findings=findings))

    assert code() is ExitCode.OK
    assert code("storage") is ExitCode.UNSOUND
    assert code("storage", KAFKA) is ExitCode.UNREACHABLE


@pytest.mark.parametrize(
    ("ahead_s", "words"), [(0.5, None), (-0.5, None), (90.0, "90.0 s ahead of"), (-90.0, "90.0 s behind")]
)
def test_difference_of_clocks_is_reported_with_its_sign(ahead_s: float, words: str | None) -> None:
    report = Report("clock")
    report_clock(report, ahead_s, "jobmanager")
    (found,) = report.findings
    assert found.health is (Health.OK if words is None else Health.WARNING)
    assert words is None or f"{words} that of jobmanager" in found.message


def test_dead_letters_are_counted_and_last_ones_have_sender_and_remedy() -> None:
    header = Header(event_id="e", time=1, sender="client/me", sender_epoch=0, recipient="dispatcher")
    value = Codec("c").encode(Event(header, CancelJob(job_id="j")))
    request, event = (Origin(topic=f"c.{name}", partition=0, offset=7) for name in ("submissions", "log"))
    refused = DeadLetter(source=request, reason="may not\nbe sent", time=1, value=value[:-1])
    ignored = DeadLetter(source=event, reason="not an Avro event", time=1, value=b"garbage")
    report = Report("dead letters")
    report_dead_letters(report, "c", 12, [refused, ignored])
    assert {each.health for each in report.findings} == {Health.WARNING}
    count, first, last = map(str, report.findings)
    assert count == "c.dead-letters got 12 letters in the last day"
    assert first == (
        "c.submissions, partition 0, offset 7: may not be sent; its sender is 'client/me', as it says: correct the "
        "request as the reason says, and send it again"
    )
    assert (
        "c.log, partition 0, offset 7: not an Avro event; its sender is unknown: it changed nothing" in last
    )
    assert last.endswith("tailrace kafka-tools kafka-acls --list --topic c.log")


def test_no_dead_letter_is_no_finding_to_mend() -> None:
    report = Report("dead letters")
    report_dead_letters(report, "c", 0, [])
    (found,) = report.findings
    assert found.health is Health.OK


def test_needs_of_checks_come_before_them() -> None:
    seen: set[str] = set()
    for check in CHECKS:
        assert seen.issuperset(check.needs)
        seen.add(check.name)


def test_unreachable_kafka_is_one_fault_and_the_rest_is_checked(
    tmp_path: Path, silent_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--home", str(tmp_path), "--bootstrap-servers", silent_server, "-o", "json"]
    assert main(["cluster", "doctor", *options]) == ExitCode.UNREACHABLE
    found = json.loads(capsys.readouterr().out)
    health = {each["check"]: each["health"] for each in found["findings"]}
    assert health["acls"] == health["topics"] == health["clock"] == "skipped"
    assert health["storage"] == "ok"
    (fault,) = [each for each in found["findings"] if each["health"] == "failed"]
    assert fault["check"] == "kafka"
    assert silent_server in fault["message"]


def test_storage_that_cannot_be_written_is_fault_with_remedy(
    tmp_path: Path, silent_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    place = str(tmp_path / "file" / "ha")
    options = ["--home", str(tmp_path), "--bootstrap-servers", silent_server]
    main(["cluster", "doctor", *options, "-D", f"high-availability.storageDir={place}"])
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if "high-availability.storageDir" in line]
    assert line.startswith("failed")
    assert "set high-availability.storageDir to another place" in line


def test_registry_that_does_not_answer_is_fault_with_remedy(
    tmp_path: Path, silent_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--home", str(tmp_path), "--bootstrap-servers", silent_server]
    main(["cluster", "doctor", *options, "-D", f"schema.registry.url=http://{silent_server}"])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if " registry: " in f" {line}"]
    assert line.startswith("failed")
    assert "correct schema.registry.url" in line
