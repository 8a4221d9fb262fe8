"""`tailrace log`, its export and import, on files, without Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.schemas.client import JobAccepted
from tailrace.schemas.event import Event
from tailrace.services.cli import main
from tailrace.services.history.archive import avro_file
from tailrace.services.history.archive.exporter import EventSelection, export
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.log import Codec
from tailrace.services.log.memory import MemoryEventLog

from ...history.archive.archive_files import damage_block
from ...snapshots.simulated_logs import LONG, history

Run = Callable[..., tuple[int, list[str], str]]
SIZE = len(history(LONG))


def file_of(name: str | int, directory: Path) -> Path:
    """Returns an export of a history."""
    log = MemoryEventLog(Codec("c1.log"), topic="c1.log")
    log.append([Event(record.header, record.body) for record in history(name)])
    path = directory / "history.avro"
    export(log, "c1", EventSelection(0, log.end()), path, ArchiveFormat.AVRO)
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the file of a whole log."""
    return file_of(LONG, tmp_path_factory.mktemp("whole"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Returns (exit code, lines of stdout, stderr) of a command."""
    monkeypatch.setenv("TAILRACE_CACHE_DIR", str(tmp_path / "cache"))

    def run(*arguments: object) -> tuple[int, list[str], str]:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out.splitlines(), err

    return run


def refused(run: Run, code: int, *arguments: object) -> str:
    """Returns the error line of a command that ends with a code."""
    result, out, err = run(*arguments)
    assert (result, out, err.count("\n")) == (code, [], 1), err
    return err


def test_file_is_printed_like_log(whole: Path, run: Run) -> None:
    code, lines, _ = run("log", "--file", whole)
    assert (code, len(lines)) == (0, SIZE)
    assert [int(line.split()[0]) for line in lines] == list(range(SIZE))


def test_range_is_between_two_positions(whole: Path, run: Run) -> None:
    _, lines, _ = run("log", "--file", whole, "--from", 10, "--to", 12, "-o", "json")
    assert [json.loads(line)["offset"] for line in lines] == [10, 11, 12]
    begin, end = "1970-01-01T00:16:40Z", "1970-01-01T00:16:40Z"
    _, lines, _ = run("log", "--file", whole, "--from", begin, "--to", end, "-o", "json")
    times = [record.header.time for record in history(LONG)]
    later = next(i for i, time in enumerate(times) if time > 1_000_000_000)
    assert [json.loads(line)["offset"] for line in lines] == list(range(later))


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("--from", "yesterday"), 2, "is no place in a log: say an offset (4711), a time"),
        (("--from", 99_999), 4, "offset 99999 is outside"),
        (("--to", 99_999), 4, f"its last {SIZE - 1} ("),
        (("--from", "-2d"), 0, ""),
        (("--from", "1969-12-31"), 4, "is before"),
        (("--from", 9, "--to", 3), 2, "--from 9 (offset 9) is after --to 3 (offset 3)"),
        (("--follow",), 2, "--follow and --file exclude each other"),
        (("--cluster-id", "c1"), 2, "--file and --cluster-id exclude each other"),
        (("--type", "RequestSlots"), 2, "did you mean RequestSlot"),
        (("--job", "nothing"), 4, "the log has no job 'nothing'"),
    ],
)
def test_invalid_query_is_one_error_line(
    arguments: tuple[object, ...], code: int, why: str, whole: Path, run: Run
) -> None:
    result, _, err = run("log", "--file", whole, *arguments)
    assert result == code
    assert err.count("\n") == (code != 0)
    assert why in err


def test_job_may_be_given_by_name(tmp_path: Path, run: Run) -> None:
    scenario = "one_task_fails_and_is_restarted_alone"
    path = file_of(scenario, tmp_path)
    (job,) = (record.body for record in history(scenario) if isinstance(record.body, JobAccepted))
    by_name = run("log", "--file", path, "--job", job.name)
    assert by_name[:2] == run("log", "--file", path, "--job", job.job_id)[:2]
    assert by_name[1]


def test_options_of_subcommand_follow_its_name(whole: Path, tmp_path: Path, run: Run) -> None:
    err = refused(run, 2, "log", "--file", whole, "export", tmp_path / "a.avro")
    assert "--file stands before 'export'" in err


@pytest.mark.parametrize("kind", list(ArchiveFormat))
def test_file_is_exported_to_other_file(kind: ArchiveFormat, whole: Path, tmp_path: Path, run: Run) -> None:
    path = tmp_path / f"copy.{kind}"
    code, lines, _ = run("log", "export", path, "--file", whole)
    assert code == 0
    assert lines[0].startswith(f"{path}: {kind}, ")
    assert lines[1].startswith(f"  {SIZE:,} entries, offsets 0 to {SIZE - 1}, ")
    if kind != "avro":
        assert lines[2] == "  for other programs: only the Avro format can be imported or replayed"
        assert "only the Avro format can be read as a log" in refused(run, 10, "log", "--file", path)
        assert "only the Avro format" in refused(
            run, 10, "log", "import", path, "--bootstrap-servers", "localhost:1"
        )
        return
    assert run("log", "--file", path) == run("log", "--file", whole)


def test_target_file_may_be_given_by_option_to(whole: Path, tmp_path: Path, run: Run) -> None:
    code, lines, _ = run(
        "log", "export", "--to", tmp_path / "a.jsonl", "--to", 20, "--file", whole, "-o", "json"
    )
    assert code == 0
    report = json.loads(lines[0])
    assert (report["last"], report["entries"], report["whole"], report["format"]) == (20, 21, True, "jsonl")


def test_selection_is_reported_as_selection(whole: Path, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "part.avro"
    _, reports, _ = run("log", "--file", whole, "--type", "SubmitTask", "-o", "json")
    job = json.loads(reports[0])["job"]
    asked = ("--job", job, "--type", "SubmitTask")
    _, reports, _ = run("log", "--file", whole, *asked, "-o", "json")
    code, lines, _ = run("log", "export", path, "--file", whole, *asked)
    assert (code, lines[-1]) == (
        0,
        f"  a selection (of job {job}, of type SubmitTask): it can't be imported or replayed",
    )
    _, results, _ = run("log", "--file", path, "-o", "json")
    assert [json.loads(result)["offset"] for result in results] == [
        json.loads(report)["offset"] for report in reports
    ]
    assert results
    assert f"is a selection (of job {job}, of type SubmitTask)" in refused(run, 10, "state", "--file", path)
    assert "it can't" not in refused(run, 10, "log", "import", path, "--bootstrap-servers", "localhost:1")
    assert "does not show the job of an event" in refused(
        run, 2, "log", "export", tmp_path / "b.avro", "--file", path, "--job", job
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "no file is named"),
        (
            ("history",),
            "the name of history has no known suffix: use one of .avro, .jsonl, .parquet",
        ),
        (("/tmp", "--format", "avro", "--overwrite"), "/tmp is a directory: name the file"),
        (("history.csv", "--format", "csv"), "there is no format 'csv': use one of avro, jsonl, parquet"),
        (("a.avro", "--to", "b.avro"), "'b.avro' is no place in a log"),
        (("a.avro", "--to", "3", "--to", "4"), "--to 3 and --to 4 exclude each other"),
    ],
)
def test_failed_export_is_one_error_line(arguments: tuple[str, ...], why: str, whole: Path, run: Run) -> None:
    assert why in refused(run, 2, "log", "export", *arguments, "--file", whole)


def test_existing_file_is_replaced_only_with_option(whole: Path, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "a.avro"
    path.write_text("dear")
    err = refused(run, 2, "log", "export", path, "--file", whole)
    assert f"{path} already exists: --overwrite replaces it" in err
    assert path.read_text() == "dear"
    assert run("log", "export", path, "--file", whole, "--overwrite")[0] == 0
    assert path.read_bytes() == whole.read_bytes()


def test_file_is_not_exported_to_itself(whole: Path, run: Run) -> None:
    before = whole.read_bytes()
    assert "is the file to read, so it can't be replaced" in refused(
        run, 2, "log", "export", whole, "--file", whole, "--overwrite", "--to", 5
    )
    assert whole.read_bytes() == before


def test_damaged_file_is_reported_and_read_up_to_damage(
    whole: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro_file, "_BLOCK", 2_000)
    path = tmp_path / "harmed.avro"
    assert run("log", "export", path, "--file", whole)[0] == 0
    damage_block(path, 3)
    code, reports, err = run("log", "--file", path)
    assert (code, err.count("\n")) == (10, 1)
    good = len(reports) - 1
    assert "(block 3)" in err
    assert f"the last good offset is {good}, and --to {good} (or --at) reads up to there" in err
    code, reports, _ = run("log", "--file", path, "--to", good)
    assert (code, len(reports)) == (0, good + 1)
    assert run("log", "export", tmp_path / "rescued.avro", "--file", path, "--to", good)[0] == 0
    assert run("state", "--file", path, "--at", good)[0] == 0
    refused(run, 10, "log", "export", tmp_path / "b.avro", "--file", path)
    assert not (tmp_path / "b.avro").exists()
    refused(run, 10, "log", "import", path, "--bootstrap-servers", "localhost:1")


def test_undecodable_records_are_skipped_and_reported_at_end(tmp_path: Path, run: Run) -> None:
    log = MemoryEventLog(Codec("c1.log"), topic="c1.log")
    log.append([Event(record.header, record.body) for record in history(LONG)[:20]])
    foreign = bytearray(Codec("c1.log").encode(Event(history(LONG)[20].header, history(LONG)[20].body)))
    foreign[4] ^= 1
    log.append_values([bytes(foreign), b"hello"])
    path = tmp_path / "a.avro"
    export(log, "c1", EventSelection(0, log.end()), path, ArchiveFormat.AVRO)
    code, lines, err = run("log", "--file", path)
    assert (code, len(lines), err.count("\n")) == (0, 20, 1)
    assert (
        f"tailrace: skipped 2 values that are no event of this release in {path}, the first at offset 20 "
        in err
    )
    assert "(unknown schema: fingerprint" in err


def test_file_that_is_no_export_is_reported(tmp_path: Path, run: Run) -> None:
    assert "No such file" in refused(run, 10, "log", "--file", tmp_path / "nowhere.avro")
    (tmp_path / "a.txt").write_text("hello")
    assert "is no exported log" in refused(run, 10, "log", "--file", tmp_path / "a.txt")
