"""`tailrace fork` and the processes of a simulated cluster, with what can be wrong; tests/integration has the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailrace.services.cli import main
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.cli.local.cluster import LocalCluster, LocalClusterOptions
from tailrace.services.cli.local.process_names import SIMULATED
from tailrace.services.configuration import Configuration
from tailrace.services.history.archive.exporter import EventSelection, export
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.simulation.fork_members import ForkMember, write_members

from ...simulation.what_if.history_builder import HistoryBuilder, write


@pytest.fixture
def file(tmp_path: Path) -> Path:
    studio = HistoryBuilder()
    studio.start_workers("te-1")
    return write(studio.run(5), tmp_path / "history.avro")


@pytest.fixture
def failing(file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(file.parent)

    def run(*arguments: str, code: ExitCode, source: Path = file) -> str:
        assert main(["fork", "--file", str(source), *arguments]) == code
        said = capsys.readouterr().err
        lines = [line for line in said.splitlines() if line.startswith("tailrace: ")]
        assert len(lines) == 1
        assert "Traceback" not in said
        return lines[0]

    return run


def test_a_name_that_is_none_is_refused(failing: Any) -> None:
    assert "--to a b" in failing("--to", "a b", code=ExitCode.USAGE)


def test_a_home_that_is_taken_is_left_alone(failing: Any, tmp_path: Path) -> None:
    home = tmp_path / "other"
    home.mkdir()
    (home / "tailrace.yaml").write_text("cluster.id: other\n")
    told = failing("--to", "trial", "--to-home", str(home), code=ExitCode.USAGE)
    assert "is already the home of a cluster; choose another one with --to-home" in told
    assert [each.name for each in home.iterdir()] == ["tailrace.yaml"]


@pytest.mark.parametrize("home", ["history.avro", "history.avro/below"])
def test_what_can_not_be_a_home_is_named(failing: Any, tmp_path: Path, home: str) -> None:
    told = failing("--to", "trial", "--to-home", str(tmp_path / home), code=ExitCode.USAGE)
    assert f"{tmp_path / home} can't be the home of a cluster" in told
    assert told.endswith("choose another one with --to-home")


def test_a_place_outside_the_log_is_named(failing: Any, tmp_path: Path) -> None:
    told = failing("--to", "trial", "--at", "5000", code=ExitCode.NOT_FOUND)
    assert "offset 5000 is outside" in told
    assert not (tmp_path / ".tailrace-trial").exists()


def test_a_kafka_that_does_not_answer_is_named_before_anything_is_made(failing: Any, tmp_path: Path) -> None:
    home = tmp_path / "trial"
    said = failing(
        "--to", "trial", "--to-home", str(home), "--to-kafka", "127.0.0.1:1", code=ExitCode.UNREACHABLE
    )
    assert "there is no Kafka at 127.0.0.1:1: nobody answers" in said
    assert not home.exists()


def test_a_selection_is_no_history_to_go_on_from(failing: Any, file: Path, tmp_path: Path) -> None:
    part = tmp_path / "part.avro"
    with FileLog.open(file) as opened:
        export(opened, "studio", EventSelection(2, opened.end()), part, ArchiveFormat.AVRO)
    told = failing("--to", "trial", code=ExitCode.ARCHIVE, source=part)
    assert "part.avro" in told
    assert not (tmp_path / ".tailrace-trial").exists()


def test_a_simulated_cluster_starts_one_process_for_all_its_task_executors(tmp_path: Path) -> None:
    configuration = Configuration({"home": str(tmp_path), "simulation.enabled": "true"})
    cluster = LocalCluster(configuration)
    assert cluster.task_executors(LocalClusterOptions()) == []
    write_members(tmp_path, [ForkMember("te-1", 2), ForkMember("te-2", 2)])
    assert cluster.task_executors(LocalClusterOptions()) == [SIMULATED]
    assert cluster.task_executors(LocalClusterOptions(taskexecutors=1)) == ["taskexecutor-1"]
    real = LocalCluster(Configuration({"home": str(tmp_path)}))
    assert real.task_executors(LocalClusterOptions()) == ["taskexecutor-1", "taskexecutor-2"]


def test_a_home_that_names_none_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(
        [
            "taskexecutor",
            "--home",
            str(tmp_path),
            "--bootstrap-servers",
            "127.0.0.1:1",
            "-D",
            "simulation.enabled=true",
        ]
    )
    assert code == ExitCode.USAGE
    assert "simulated.json lists no TaskExecutors to simulate" in capsys.readouterr().err
