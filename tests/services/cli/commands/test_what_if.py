"""`tailrace what-if` over an exported file, with errors of the arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tailrace.services.cli import main
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.log.event_log import read_to_end

from ...simulated_cluster.cluster import SECOND
from ...simulation.what_if.history_builder import (
    BEGIN,
    HistoryBuilder,
    MemoryHistory,
    RandomTaskBehavior,
    write,
)

SCENARIO = """
until: 3 min
configuration: {cluster.evenly-spread-out-slots: true}
events:
  - {at: 20 s, join: {count: 2, slots: 4}}
  - {at: 40 s, submit: {like: j1, as: "more"}}
  - {at: 60 s, kill: te-1}
  - {at: 61 s, kill: te-1}
"""


@pytest.fixture(scope="module")
def history() -> MemoryHistory:
    studio = HistoryBuilder(
        {"restart-strategy.type": "fixed-delay"}, RandomTaskBehavior(4, failures=0.0, mean_s=60)
    )
    studio.start_workers("te-1", "te-2", slots=2)
    for number in range(4):
        studio.schedule_at(5 + 10 * number, studio.submit, f"j{number}", 1 + number % 2)
    return studio.run(120)


@pytest.fixture(scope="module")
def file(history: MemoryHistory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(history, tmp_path_factory.mktemp("log") / "history.avro")


@pytest.fixture
def run(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def running(*arguments: str, scenario: str = SCENARIO, code: ExitCode = ExitCode.OK) -> str:
        """Returns the stdout of the command, or its line on stderr if it has to fail."""
        path = tmp_path / "scenario.yaml"
        path.write_text(scenario, "utf-8")
        assert main(["what-if", str(path), "--file", str(file), *arguments]) == code
        events = capsys.readouterr()
        if code == ExitCode.OK:
            return events.out
        lines = [line for line in events.err.splitlines() if line.startswith("tailrace: ")]
        assert len(lines) == 1
        assert "Traceback" not in events.err
        return lines[0]

    return running


def test_both_outcomes_are_printed_side_by_side(run: Any) -> None:
    output = run("--at", "40")
    assert "from offset 40" in output
    rows = [line.split() for line in output.splitlines()]
    assert any(row[:1] == ["j0"] and "really" in row for row in rows)
    assert sum("what if" in line for line in output.splitlines()) >= 5
    assert any(row[:1] == ["more"] for row in rows)
    assert output.count("no effect: ") == 1
    assert "te-1 is not there at that time" in output


def test_json_has_everything(run: Any) -> None:
    data = json.loads(run("--at", "40", "-o", "json"))
    assert data["cluster"] == "studio"
    assert data["offset"] == 40
    assert [item["action"]["kind"] for item in data["scenario"]["events"]] == [
        "Join",
        "Submit",
        "Kill",
        "Kill",
    ]
    for stretch in (data["really"], data["what_if"]):
        assert all(step["used"] <= step["total"] for step in stretch["slots"])
        assert stretch["used_slot_time"] > 0
    assert data["what_if"]["end"] - data["what_if"]["start"] == 180 * SECOND
    assert data["really"]["end"] <= BEGIN + 120 * SECOND
    assert len(data["notes"]) == 1


def test_same_command_prints_same_output(run: Any) -> None:
    assert run("--at", "40", "-o", "json") == run("--at", "40", "-o", "json")


def test_simulated_log_is_valid_history(
    run: Any, tmp_path: Path, history: MemoryHistory, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "would.avro"
    run("--at", "40", "--log", str(path))
    with FileLog.open(path) as log:
        records = [record for batch in read_to_end(log) for record in batch]
    assert records[:41] == list(history.records[:41])
    assert records[41:] != list(history.records[41:])
    assert main(["story", "more", "--file", str(path)]) == ExitCode.OK
    assert "more" in capsys.readouterr().out


def test_existing_file_is_not_overwritten_without_option(run: Any, tmp_path: Path) -> None:
    log = tmp_path / "would.avro"
    log.write_text("dear")
    output = run("--at", "40", "--log", str(log), code=ExitCode.USAGE)
    assert "already exists: --overwrite replaces it" in output
    assert log.read_text() == "dear"
    run("--at", "40", "--log", str(log), "--overwrite")
    with FileLog.open(log) as result:
        assert result.end() > 40


def test_history_is_not_overwritten_by_simulated_log(run: Any, file: Path) -> None:
    before = file.read_bytes()
    output = run("--at", "40", "--log", str(file), "--overwrite", code=ExitCode.USAGE)
    assert "is the file to read, so it can't be replaced" in output
    assert file.read_bytes() == before


def test_default_position_is_end_of_log(run: Any, history: MemoryHistory) -> None:
    output = run(scenario="events: [{at: 1 s, submit: {like: j1, as: more}}]")
    assert f"from offset {len(history.records) - 1}" in output
    assert "there is only the simulated result" in output
    assert "really" not in output.replace("really happened", "")


@pytest.mark.parametrize(
    ("arguments", "scenario", "code", "message"),
    [
        (["--at", "99999"], "", ExitCode.NOT_FOUND, "offset 99999 is outside"),
        (["--at", "1960-01-01T00:00"], "", ExitCode.NOT_FOUND, "is before"),
        (["--at", "soon"], "", ExitCode.USAGE, "'soon' is no place in a log"),
        (
            [],
            "util: 1 s",
            ExitCode.USAGE,
            "scenario.yaml:1: the scenario: 'util' is unknown; did you mean until?",
        ),
        (
            [],
            "events:\n- {at: 1 s, kill: te-7}",
            ExitCode.USAGE,
            "scenario.yaml:2: kill: there is no TaskExecutor",
        ),
        (["--log", "/nowhere/x.avro"], "", ExitCode.ARCHIVE, "/nowhere/x.avro can't be written"),
        (
            ["--log", "x.txt"],
            "",
            ExitCode.USAGE,
            "the name of x.txt has no known suffix: use one of .avro",
        ),
        (["--cluster-id", "x"], "", ExitCode.USAGE, "--file and --cluster-id exclude each other"),
    ],
)
def test_invalid_scenario_is_one_line_with_position_and_remedy(
    run: Any, arguments: list[str], scenario: str, code: ExitCode, message: str
) -> None:
    assert message in run(*arguments, scenario=scenario, code=code)


def test_invalid_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario, broken = tmp_path / "s.yaml", tmp_path / "broken.avro"
    scenario.write_text("")
    broken.write_bytes(b"Obj\x01 and then nothing that makes sense")
    assert main(["what-if", str(scenario), "--file", str(broken)]) == ExitCode.ARCHIVE
    assert "broken.avro" in capsys.readouterr().err
    assert main(["what-if", str(tmp_path / "no.yaml"), "--file", str(broken)]) == ExitCode.USAGE
    assert "no.yaml can't be read" in capsys.readouterr().err
