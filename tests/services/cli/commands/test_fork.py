"""`tailrace fork` and the processes of a simulated cluster, and their errors; tests/integration has the rest."""

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
from tailrace.services.simulation.fork import ForkMember, write_members

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
        output = capsys.readouterr().err
        lines = [line for line in output.splitlines() if line.startswith("tailrace: ")]
        assert len(lines) == 1
        assert "Traceback" not in output
        return lines[0]

    return run


def test_invalid_name_is_rejected(failing: Any) -> None:
    assert "--to a b" in failing("--to", "a b", code=ExitCode.USAGE)


def test_existing_home_is_left_alone(failing: Any, tmp_path: Path) -> None:
    home = tmp_path / "other"
    home.mkdir()
    (home / "tailrace.yaml").write_text("cluster.id: other\n")
    report = failing("--to", "trial", "--to-home", str(home), code=ExitCode.USAGE)
    assert "is already the home of a cluster; choose another one with --to-home" in report
    assert [path.name for path in home.iterdir()] == ["tailrace.yaml"]


@pytest.mark.parametrize("home", ["history.avro", "history.avro/below"])
def test_path_that_cannot_be_home_is_named(failing: Any, tmp_path: Path, home: str) -> None:
    report = failing("--to", "trial", "--to-home", str(tmp_path / home), code=ExitCode.USAGE)
    assert f"{tmp_path / home} can't be the home of a cluster" in report
    assert report.endswith("choose another one with --to-home")


def test_position_outside_log_is_named(failing: Any, tmp_path: Path) -> None:
    report = failing("--to", "trial", "--at", "5000", code=ExitCode.NOT_FOUND)
    assert "offset 5000 is outside" in report
    assert not (tmp_path / ".tailrace-trial").exists()


def test_unreachable_kafka_is_named_before_anything_is_created(failing: Any, tmp_path: Path) -> None:
    home = tmp_path / "trial"
    output = failing(
        "--to", "trial", "--to-home", str(home), "--to-kafka", "127.0.0.1:1", code=ExitCode.UNREACHABLE
    )
    assert "there is no Kafka at 127.0.0.1:1: nobody answers" in output
    assert not home.exists()


def test_selection_cannot_be_forked(failing: Any, file: Path, tmp_path: Path) -> None:
    part = tmp_path / "part.avro"
    with FileLog.open(file) as opened:
        export(opened, "studio", EventSelection(2, opened.end()), part, ArchiveFormat.AVRO)
    report = failing("--to", "trial", code=ExitCode.ARCHIVE, source=part)
    assert "part.avro" in report
    assert not (tmp_path / ".tailrace-trial").exists()


def test_simulated_cluster_starts_one_process_for_all_task_executors(tmp_path: Path) -> None:
    configuration = Configuration({"home": str(tmp_path), "simulation.enabled": "true"})
    cluster = LocalCluster(configuration)
    assert cluster.task_executors(LocalClusterOptions()) == []
    write_members(tmp_path, [ForkMember("te-1", 2), ForkMember("te-2", 2)])
    assert cluster.task_executors(LocalClusterOptions()) == [SIMULATED]
    assert cluster.task_executors(LocalClusterOptions(taskexecutors=1)) == ["taskexecutor-1"]
    real = LocalCluster(Configuration({"home": str(tmp_path)}))
    assert real.task_executors(LocalClusterOptions()) == ["taskexecutor-1"]


def test_home_without_members_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
