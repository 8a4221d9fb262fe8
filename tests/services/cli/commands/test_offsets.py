"""`tailrace offsets reset` refuses what it cannot do in one line. tests/integration/test_savepoints.py uses real
offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.services.cli import main
from tailrace.services.cli.commands.offsets import _parse_target
from tailrace.services.cli.exit_codes import CommandFailure, ExitCode
from tailrace.services.client.offset_reset import ToEarliest, ToLatest, ToOffsets, ToTime


def target(
    *, earliest: bool = False, latest: bool = False, datetime: str | None = None, offset: tuple[str, ...] = ()
) -> object:
    return _parse_target(to_earliest=earliest, to_latest=latest, to_datetime=datetime, to_offset=offset)


def test_one_target_is_parsed() -> None:
    assert target(earliest=True) == ToEarliest()
    assert target(latest=True) == ToLatest()
    assert target(datetime="2026-11-22T08:30:00.250+00:00") == ToTime(1_795_336_200_250)
    assert target(offset=("clicks:0=5", "my.clicks:12=0")) == ToOffsets(
        {("clicks", 0): 5, ("my.clicks", 12): 0}
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give one of"),
        ({"earliest": True, "latest": True}, "give one of"),
        ({"earliest": True, "offset": ("clicks:0=5",)}, "give one of"),
        ({"offset": ("clicks=5",)}, "clicks=5: write TOPIC:PARTITION=OFFSET"),
        ({"offset": ("clicks:0=-5",)}, "write TOPIC:PARTITION=OFFSET"),
        ({"datetime": "4711"}, "4711 is not a time"),
    ],
)
def test_other_targets_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(CommandFailure, match=message) as refused:
        target(**given)  # type: ignore[arg-type]
    assert refused.value.code is ExitCode.USAGE


def test_topic_beside_offset_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["offsets", "reset", str(tmp_path), "--to-offset", "clicks:0=1", "--topic", "clicks"]
    assert main(command) == ExitCode.USAGE
    assert capsys.readouterr().err == "tailrace: --to-offset names its topics: do not give --topic\n"
