"""`savepoint inspect` of intact, damaged and newer savepoints, and of other files; `run -s` checks them too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.schemas.types import SnapshotType, StateFile
from tailrace.services.cli import main
from tailrace.services.cli.args.savepoint_location import parse_location
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.cli.local.cluster_record import ClusterRecord, write_record
from tailrace.services.cli.render.checkpoint_inspection import key_groups

from ...savepoint_files import COUNT, SOURCE, save

WIDE = "SUBTASK                   OPERATOR        STATE  FILES  KEY GROUPS  WHAT"


@pytest.fixture
def savepoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save(str(tmp_path / "savepoint-clicks-1"))
    return tmp_path / "savepoint-clicks-1"


def test_output_has_operators_key_groups_positions_and_in_flight_data(
    savepoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["savepoint", "inspect", savepoint.name]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"savepoint {savepoint}"
    assert lines[1] == "  of job     clicks-1a2b3c (Clicks), number 7, generation 0"
    assert lines[3] == "  size       757 B in 2 files"
    assert lines[10:] == [
        WIDE,
        "Source: clicks (1/2)      Source: clicks  29 B   0                  clicks[0]@42, clicks[1]@7",
        "Source: clicks (2/2)                                                had finished",
        "Count -> Sink: out (1/2)  Count           362 B  1      0-63",
        "Count -> Sink: out (2/2)  Count           362 B  1      64-127",
        "Count -> Sink: out (2/2)                  33 B                      in flight",
    ]
    assert lines[7].split() == f"Count -> Sink: out 2 of 128 Count (uid counts) reduce {COUNT} 724 B".split()


def test_json_is_one_object(savepoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["savepoint", "inspect", str(savepoint), "--verify", "-o", "json"]) == ExitCode.OK
    result = json.loads(capsys.readouterr().out)
    assert result["faults"] == []
    assert (result["job_id"], result["checkpoint_id"], result["snapshot_type"]) == (
        "clicks-1a2b3c",
        7,
        "SAVEPOINT",
    )
    source, count = result["vertices"]
    assert source["subtasks"][0]["operators"][0]["operator_id"] == SOURCE
    assert source["subtasks"][0]["operators"][0]["positions"] == {"clicks": {"0": 42, "1": 7}}
    assert [item["finished"] for item in source["subtasks"]] == [False, True]
    assert [element["in_flight"] for element in count["subtasks"]] == [0, 33]
    assert [value["uid"] for value in count["operators"]] == ["counts", None]


def test_checkpoint_of_tenant_can_be_inspected_also_by_its_metadata_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(str(tmp_path / "job" / "chk-7"), SnapshotType.CHECKPOINT, tenant="pay")
    assert main(["savepoint", "inspect", str(tmp_path / "job" / "chk-7" / "_metadata")]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"checkpoint {tmp_path}/job/chk-7"
    assert lines[1].startswith("  of job     clicks-1a2b3c (Clicks) of tenant pay, number 7")


def test_verify_names_each_missing_truncated_or_changed_file(
    savepoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (savepoint / "count-0").unlink()
    data = bytearray((savepoint / "count-1").read_bytes())
    data[-20] ^= 1
    (savepoint / "count-1").write_bytes(data)
    assert main(["savepoint", "inspect", str(savepoint)]) == ExitCode.OK
    capsys.readouterr()
    assert main(["savepoint", "inspect", str(savepoint), "--verify"]) == ExitCode.SAVEPOINT
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"tailrace: {savepoint} is damaged: {savepoint}/count-0 does not exist")
    assert f"{savepoint}/count-1" in second


def test_location_that_is_no_savepoint_is_one_error_line(
    savepoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = savepoint.parent
    metadata = (savepoint / "_metadata").read_bytes()
    for name, content in {
        "torn": metadata[:-9],
        "changed": metadata[:-9] + b"\x00" + metadata[-8:],
        "newer": metadata[:8] + b"\xff\x00" + metadata[10:],
        "strange": b"\x01\x02",
    }.items():
        (home / name).mkdir()
        (home / name / "_metadata").write_bytes(content)
    (home / "empty").mkdir()
    for name, code, says in (
        ("nowhere", ExitCode.NOT_FOUND, "is not a checkpoint or savepoint: it does not exist"),
        ("empty", ExitCode.NOT_FOUND, "is not a checkpoint or savepoint: it has no _metadata"),
        ("strange", ExitCode.NOT_FOUND, "was not written by tailrace"),
        ("newer", ExitCode.NOT_FOUND, "has version 255 and this tailrace reads up to 1: use the newer one"),
        ("torn", ExitCode.SAVEPOINT, "is truncated"),
        ("changed", ExitCode.SAVEPOINT, "its checksum differs"),
    ):
        assert main(["savepoint", "inspect", name]) == code, name
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"tailrace: {home}/{name}")
        assert says in err
        assert err.count("\n") == 1


def test_local_job_is_not_started_from_invalid_savepoint(
    savepoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(".tailrace").mkdir()
    write_record(Path(".tailrace"), ClusterRecord("c", "localhost:1", embedded_kafka=False))
    assert main(["run", "-s", "nowhere", "a:b"]) == ExitCode.NOT_FOUND
    assert capsys.readouterr().err == (
        f"tailrace: {savepoint.parent}/nowhere is not a checkpoint or savepoint: it does not exist\n"
    )


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("dir/savepoint", "file://{here}/dir/savepoint"),
        ("../x/", "file://{above}/x"),
        ("/data//x", "file:///data/x"),
        ("file:///data/x", "file:///data/x"),
        ("s3://bucket/x/", "s3://bucket/x"),
    ],
)
def test_relative_path_refers_to_working_directory(
    text: str, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_location(text) == uri.format(here=tmp_path, above=tmp_path.parent)


@pytest.mark.parametrize(
    ("ranges", "text"),
    [
        ([], ""),
        ([(-1, -1)], ""),
        ([(0, 63), (64, 127)], "0-127"),
        ([(64, 127), (0, 31), (-1, -1)], "0-31, 64-127"),
        ([(5, 5)], "5"),
        ([(0, 10), (5, 7)], "0-10"),
    ],
)
def test_adjacent_key_group_ranges_are_merged(ranges: list[tuple[int, int]], text: str) -> None:
    files = [
        StateFile(path="x", length=1, crc=0, first_key_group=first, last_key_group=last)
        for first, last in ranges
    ]
    assert key_groups(files) == text
