"""The output of `tailrace sql`: text, JSON and CSV."""

from __future__ import annotations

import datetime
import json

import pyarrow as pa
import pytest

from tailrace.services.cli.commands.sql.results import ResultFormat, print_answer

TIME = datetime.datetime(2026, 11, 22, 8, 30, 5, 193_000, datetime.UTC)
ANSWER = pa.table(
    [
        pa.array([1, None]),
        pa.array([TIME, None]),
        pa.array([datetime.timedelta(milliseconds=-1500), None]),
        pa.array([b"no event", None]),
        pa.array([{"names": ["a", "b, c"]}, None]),
        pa.array([0.1 + 0.2, None]),
        pa.array(['say "x"', ""]),
    ],
    names=["n", "time", "wait", "value", "value", "ratio", "text"],
)


def test_json_has_all_rows(capsys: pytest.CaptureFixture[str]) -> None:
    print_answer(ANSWER, ResultFormat.JSON)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {
        "n": 1,
        "time": "2026-11-22T08:30:05.193000Z",
        "wait": "-PT1.5S",
        "value": "bm8gZXZlbnQ=",
        "value_2": {"names": ["a", "b, c"]},
        "ratio": 0.1 + 0.2,
        "text": 'say "x"',
    }
    assert second == dict.fromkeys(first) | {"text": ""}


def test_csv_has_fields(capsys: pytest.CaptureFixture[str]) -> None:
    print_answer(ANSWER, ResultFormat.CSV)
    head, first, second = capsys.readouterr().out.splitlines()
    assert head == "n,time,wait,value,value_2,ratio,text"
    assert first.startswith(
        '1,2026-11-22T08:30:05.193000Z,-PT1.5S,bm8gZXZlbnQ=,"{""names"":[""a"",""b, c""]}",'
    )
    assert first.endswith(',0.30000000000000004,"say ""x"""')
    assert second == ",,,,,,"


def test_text_has_first_rows_shortened(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    print_answer(ANSWER, ResultFormat.TEXT)
    report = capsys.readouterr().out
    assert "NULL" in report
    assert "8 bytes 6e 6f 20 65 76 65 6e 74" in report
    assert "-1.5 s" in report
    print_answer(pa.table({"n": range(1_001)}), ResultFormat.TEXT)
    report, hint = capsys.readouterr()
    assert "1000" not in report.split()
    assert "999" in report.split()
    assert hint == "these are the first 1,000 rows: -o json or csv prints all, LIMIT fewer\n"
