"""`tailrace what-if` as a user has it: over an exported file, with what can be wrong."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
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
        """What the command says: on stdout, or, where it is to fail, its line on stderr."""
        path = tmp_path / "scenario.yaml"
        path.write_text(scenario, "utf-8")
        assert main(["what-if", str(path), "--file", str(file), *arguments]) == code
        said = capsys.readouterr()
        if code == ExitCode.OK:
            return said.out
        lines = [line for line in said.err.splitlines() if line.startswith("tailrace: ")]
        assert len(lines) == 1
        assert "Traceback" not in said.err
        return lines[0]

    return running


def test_both_are_told_side_by_side(run: Any) -> None:
    said = run("--at", "40")
    assert "from offset 40" in said
    rows = [line.split() for line in said.splitlines()]
    assert any(row[:1] == ["j0"] and "really" in row for row in rows)
    assert sum("what if" in line for line in said.splitlines()) >= 5
    assert any(row[:1] == ["more"] for row in rows)
    assert said.count("no effect: ") == 1
    assert "te-1 is not there at that time" in said


def test_machines_get_all_of_it(run: Any) -> None:
    data = json.loads(run("--at", "40", "-o", "json"))
    assert data["cluster"] == "studio"
    assert data["offset"] == 40
    assert [each["action"]["kind"] for each in data["scenario"]["events"]] == [
        "Join",
        "Submit",
        "Kill",
        "Kill",
    ]
    for stretch in (data["really"], data["what_if"]):
        assert all(sum(step["by_job"].values()) == step["used"] <= step["total"] for step in stretch["slots"])
        assert stretch["used_slot_time"] > 0
    assert data["what_if"]["end"] - data["what_if"]["start"] == 180 * SECOND
    assert data["really"]["end"] <= BEGIN + 120 * SECOND
    assert len(data["notes"]) == 1


def test_slots_over_time_are_drawn(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "slots.svg"
    run("--at", "40", "--svg", str(path))
    text = path.read_text("utf-8")
    root = ElementTree.fromstring(text)
    texts = [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}text")]
    for wanted in ("what really happened", "what would have happened", "2 join", "kill te-1", "j0", "more"):
        assert wanted in texts
    width = float(root.get("width", "0"))
    for each in root.iter("{http://www.w3.org/2000/svg}text"):
        assert 0 <= float(each.get("x", "0")) + 60 <= width + 60


def test_the_same_command_says_and_draws_the_same_again(run: Any, tmp_path: Path) -> None:
    said = [(run("--at", "40", "-o", "json", "--svg", str(tmp_path / f"{n}.svg"))) for n in range(2)]
    assert said[0] == said[1]
    assert (tmp_path / "0.svg").read_bytes() == (tmp_path / "1.svg").read_bytes()


def test_the_log_that_would_have_been_is_a_history_like_any_other(
    run: Any, tmp_path: Path, history: MemoryHistory, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "would.avro"
    run("--at", "40", "--log", str(path))
    with FileLog.open(path) as log:
        records = [each for batch in read_to_end(log) for each in batch]
    assert records[:41] == list(history.records[:41])
    assert records[41:] != list(history.records[41:])
    assert main(["story", "more", "--file", str(path)]) == ExitCode.OK
    assert "more" in capsys.readouterr().out


def test_nothing_that_is_there_is_written_over_unasked(run: Any, tmp_path: Path) -> None:
    log, picture, letter = (tmp_path / name for name in ("would.avro", "slots.svg", "letter.txt"))
    for each in (log, picture, letter):
        each.write_text("dear")
    usage = ExitCode.USAGE
    assert "already exists: --overwrite replaces it" in run("--at", "40", "--log", str(log), code=usage)
    assert "is no picture" in run("--at", "40", "--svg", str(letter), code=usage)
    assert log.read_text() == letter.read_text() == "dear"
    run("--at", "40", "--log", str(log), "--overwrite", "--svg", str(picture))
    assert picture.read_text("utf-8").startswith("<svg")
    with FileLog.open(log) as found:
        assert found.end() > 40


def test_a_history_is_not_written_over_by_what_would_have_been(run: Any, file: Path) -> None:
    before = file.read_bytes()
    said = run("--at", "40", "--log", str(file), "--overwrite", code=ExitCode.USAGE)
    assert "is the file to read, so it can't be replaced" in said
    assert file.read_bytes() == before


def test_without_a_place_it_goes_on_from_the_end(run: Any, history: MemoryHistory) -> None:
    said = run(scenario="events: [{at: 1 s, submit: {like: j1, as: more}}]")
    assert f"from offset {len(history.records) - 1}" in said
    assert "there is only the simulated result" in said
    assert "really" not in said.replace("really happened", "")


@pytest.mark.parametrize(
    ("arguments", "scenario", "code", "told"),
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
        (["--svg", "/nowhere/x.svg"], "", ExitCode.USAGE, "/nowhere/x.svg cannot be written"),
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
def test_what_can_not_be_is_one_line_with_place_and_remedy(
    run: Any, arguments: list[str], scenario: str, code: ExitCode, told: str
) -> None:
    assert told in run(*arguments, scenario=scenario, code=code)


def test_a_file_that_is_none_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario, broken = tmp_path / "s.yaml", tmp_path / "broken.avro"
    scenario.write_text("")
    broken.write_bytes(b"Obj\x01 and then nothing that makes sense")
    assert main(["what-if", str(scenario), "--file", str(broken)]) == ExitCode.ARCHIVE
    assert "broken.avro" in capsys.readouterr().err
    assert main(["what-if", str(tmp_path / "no.yaml"), "--file", str(broken)]) == ExitCode.USAGE
    assert "no.yaml can't be read" in capsys.readouterr().err
