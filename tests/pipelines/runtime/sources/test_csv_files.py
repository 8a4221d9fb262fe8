"""CSV files: rows as Python's csv module reads them, once, however files are cut and read again."""

from __future__ import annotations

import bz2
import csv
import io
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from connectors import Step, build_one, committed_records, operator_config
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace import FileSink, FileSource, StreamExecutionEnvironment
from tailrace.pipelines.graph.errors import ProgramError
from tailrace.pipelines.runtime.common.failures import TaskError
from tailrace.pipelines.runtime.operators.files import csv_reader, file_reader
from tailrace.pipelines.runtime.records.batch import Batch

steps = st.lists(st.integers(1, 9) | st.sampled_from(["commit", "crash"]), max_size=15)


@pytest.fixture(autouse=True)
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes splits small, so that small files have several."""
    monkeypatch.setattr(file_reader, "SPLIT_BYTES", 64)
    monkeypatch.setattr(file_reader, "_SEARCH_BYTES", 20)
    monkeypatch.setattr(csv_reader, "SPLIT_BYTES", 64)
    monkeypatch.setattr(csv_reader, "_BLOCK_BYTES", 256)


@dataclass(frozen=True)
class Item:
    name: str
    note: str | None
    count: int | None
    price: float
    sold: bool


def read(
    path: Path | str,
    output_type: object = None,
    parallelism: int = 1,
    taken: list[Step] | None = None,
    columns: list[str] | None = None,
    **options: str,
) -> list[Any]:
    config = operator_config(
        "files", paths=[str(path)], format="csv", output_type=output_type, columns=columns, options=options
    )
    return [
        record
        for subtask in range(parallelism)
        for record in committed_records(config, taken or [], subtask=subtask, parallelism=parallelism)
    ]


def write(directory: Path, records: list[Any], **options: str) -> Path:
    """Writes the records by a FileSink, as one file."""
    config = operator_config("file_sink", path=str(directory), format="csv", prefix="part", options=options)
    sink, _ = build_one(config, input_type=Item)
    sink.open()
    if records:
        sink.process(Batch([0] * len(records), records))
    sink.finish()
    sink.before_commit()
    list(sink.take_changes())
    sink.committed()
    sink.close()
    return directory


def texts(alphabet: str) -> st.SearchStrategy[str]:
    return st.text(alphabet=alphabet, max_size=12)


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.tuples(*[texts("ab ,;\"é'")] * 3), max_size=20),
    delimiter=st.sampled_from([",", ";", "\t"]),
    ending=st.sampled_from(["\n", "\r\n"]),
    n=st.integers(1, 4),
    taken=steps,
)
def test_rows_are_those_of_csv_module_with_any_crash(
    rows: list[tuple[str, ...]], delimiter: str, ending: str, n: int, taken: list[Step]
) -> None:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator=ending)
    writer.writerows([("a", "b c", "d"), *rows])
    expected = [dict(zip(("a", "b c", "d"), row, strict=True)) for row in rows]
    with TemporaryDirectory() as made:
        path = Path(made) / "rows.csv"
        path.write_bytes(out.getvalue().encode())
        for multiline in ("false", "true"):
            results = read(path, None, n, taken, delimiter=delimiter, multiline=multiline)
            if n == 1:
                assert results == expected
            else:
                assert Counter(map(str, results)) == Counter(map(str, expected))


items = st.builds(
    Item,
    name=texts('ab,"\né'),
    note=st.none() | texts('ab,"\n\r'),
    count=st.none() | st.integers(-(2**63), 2**63 - 1),
    price=st.floats(allow_nan=False),
    sold=st.booleans(),
)


@settings(deadline=None, max_examples=40)
@given(records=st.lists(items, max_size=12), header=st.sampled_from(["true", "false"]), taken=steps)
def test_what_sink_writes_source_reads(records: list[Item], header: str, taken: list[Step]) -> None:
    with TemporaryDirectory() as made:
        directory = write(Path(made) / "out", records, header=header)
        assert read(directory, Item, 1, taken, header=header, multiline="true") == records


def test_large_file_is_divided_and_compressed_file_is_not(tmp_path: Path) -> None:
    lines = ["n,text", *(f'{i},"text {i}"' for i in range(200))]
    (tmp_path / "plain").mkdir()
    (tmp_path / "packed").mkdir()
    (tmp_path / "plain" / "a.csv").write_text("\n".join(lines))
    with bz2.open(tmp_path / "packed" / "a.csv.bz2", "wt") as out:
        out.write("\n".join(lines))
    expected = [(i, f"text {i}") for i in range(200)]
    for folder, shares in (("plain", 3), ("packed", 1)):
        parts = [
            committed_records(
                operator_config(
                    "files", paths=[str(tmp_path / folder)], format="csv", output_type=tuple[int, str]
                ),
                subtask=index,
                parallelism=3,
            )
            for index in range(3)
        ]
        assert sorted(record for part in parts for record in part) == expected
        assert sum(map(bool, parts)) == shares


def test_line_with_odd_quotes_fails_with_remedy(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('a,b\n1,"two\nlines"\n')
    with pytest.raises(
        TaskError, match=r'a\.csv: a line has an odd number of quotes \("\): 1,"two; set multi'
    ):
        read(path)
    assert read(path, multiline="true") == [{"a": "1", "b": "two\nlines"}]
    path.write_text('a,b\n1,5" pipe\n')
    assert read(path, quote="") == [{"a": "1", "b": '5" pipe'}]


def test_columns_are_found_by_name_or_place(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("name,count,extra\nx,1,e\n,,\n")
    pair = tuple[str, int | None]
    assert read(path, pair, columns=["name", "count"]) == [("x", 1), ("", None)]
    assert read(path, None, columns=["extra"]) == [{"extra": "e"}, {"extra": ""}]
    with pytest.raises(TaskError, match="has no column none; it has name, count, extra"):
        read(path, None, columns=["none"])
    path.write_text("x,1\ny,2\n")
    assert read(path, header="false") == [{"f0": "x", "f1": "1"}, {"f0": "y", "f1": "2"}]
    assert read(path, tuple[str, int], header="false") == [("x", 1), ("y", 2)]
    assert read(path, None, columns=["a", "b"], header="false") == [
        {"a": "x", "b": "1"},
        {"a": "y", "b": "2"},
    ]


def test_missing_values_are_none_or_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('a\nNA\n\n"NA"\n')
    assert read(path, str | None, null="NA") == [None, "", "NA"]
    path.write_text("a,b\n1,\n")
    with pytest.raises(TaskError, match=r"a\.csv: column b has no value in some record: declare it as int"):
        read(path, tuple[int, int])


def test_wrong_value_is_named_with_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,x\n")
    with pytest.raises(TaskError, match=r"a\.csv could not be read at its beginning: .* invalid value 'x'"):
        read(path, tuple[int, int])
    path.write_text("a,b\n1\n")
    with pytest.raises(
        TaskError, match=r"a\.csv could not be read at its beginning: .*Expected 2 columns, got 1"
    ):
        read(path)


@pytest.mark.parametrize("text", ["", "a,b", "a,b\n", "\ufeffa,b\r\n"])
@pytest.mark.parametrize("multiline", ["true", "false"])
def test_file_without_rows_has_no_records(tmp_path: Path, text: str, multiline: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    assert read(path, tuple[int, int], multiline=multiline) == []


def test_wrong_options_and_types_are_refused() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    for build, reason in (
        (lambda: env.read_csv("a", delimiter="::"), "the option delimiter is '::', not one ASCII character"),
        (lambda: env.read_csv("a", quote=","), "delimiter and quote are the same character"),
        (lambda: env.read_csv("a", output_type=tuple[bytes]), "CSV has no values of type bytes"),
        (lambda: FileSource("a", options={"header": True}), "files of format text have no options"),
        (
            lambda: FileSource("a", format="csv", options={"sep": ";"}),
            "there is no option 'sep' of CSV files",
        ),
        (
            lambda: FileSink("a", "csv", options={"quote": "'"}),
            "there is no option 'quote' of CSV files here",
        ),
        (lambda: env.read_csv("a").sink_to(FileSink("b", "csv")), "CSV has no values of type"),
        (
            lambda: env.from_collection([["a"]], list[str]).sink_to(FileSink("b", "csv")),
            "a CSV file has named columns",
        ),
    ):
        with pytest.raises(ProgramError, match=reason):
            build()  # type: ignore[no-untyped-call]
