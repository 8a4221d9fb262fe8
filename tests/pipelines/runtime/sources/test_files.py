"""The file source: every record of every file once, however files are cut, shared and read again."""

from __future__ import annotations

import enum
import gzip
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import fsspec
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from connectors import Step, committed_records, open_source, operator_config, web_server_log
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.pipelines.runtime.common.failures import TaskError
from tailrace.pipelines.runtime.operators.files import file_reader, output_directory, source_storage
from tailrace.pipelines.runtime.operators.files.column_selection import NO_VALUE
from tailrace.schemas.types import OperatorConfig

in_a_directory = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
steps = st.lists(st.integers(1, 9) | st.sampled_from(["commit", "crash"]), max_size=15)
sharing = st.integers(1, 4)


@dataclass(frozen=True)
class Order:
    id: int
    item: str
    price: float


class Pair(NamedTuple):
    item: str
    id: int


@pytest.fixture(autouse=True)
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes splits small, so that small files have several."""
    monkeypatch.setattr(file_reader, "SPLIT_BYTES", 64)
    monkeypatch.setattr(file_reader, "_SEARCH_BYTES", 20)


def read(config: OperatorConfig, parallelism: int = 1, taken: list[Step] | None = None) -> list[Any]:
    return [
        record
        for subtask in range(parallelism)
        for record in committed_records(config, taken or [], subtask=subtask, parallelism=parallelism)
    ]


def text(*paths: Path | str) -> OperatorConfig:
    return operator_config("files", paths=list(map(str, paths)), format="text", output_type=str)


def files(
    form: str, path: Path, output_type: object = None, columns: list[str] | None = None
) -> OperatorConfig:
    return operator_config("files", paths=[str(path)], format=form, output_type=output_type, columns=columns)


orders = [Order(i, f"item {i % 7}" * (i % 5), i / 4) for i in range(100)]


def as_dict(order: Order) -> dict[str, Any]:
    return {"id": order.id, "item": order.item, "price": order.price}


@pytest.fixture(scope="module")
def order_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes the same orders as Parquet, in several row groups, as ORC, in several stripes, and as Avro, in several
    blocks."""
    directory = tmp_path_factory.mktemp("orders")
    rows = list(map(as_dict, orders))
    pq.write_table(pa.Table.from_pylist(rows), directory / "orders.parquet", row_group_size=13)
    with orc.ORCWriter(directory / "orders.orc", batch_size=13, stripe_size=1) as writer:
        for start in range(0, len(rows), 13):
            writer.write(pa.Table.from_pylist(rows[start : start + 13]))
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "item", "type": "string"},
            {"name": "price", "type": "double"},
        ],
    }
    with (directory / "orders.avro").open("wb") as out:
        fastavro.writer(out, schema, rows, codec="deflate", sync_interval=50)
    return directory


lines_of_text = st.lists(
    st.text(alphabet="ab \ré日", max_size=90).filter(lambda s: not s.endswith("\r")), max_size=30
)


@in_a_directory
@given(
    lines=lines_of_text, ending=st.sampled_from(["\n", "\r\n"]), closed=st.booleans(), n=sharing, taken=steps
)
def test_lines_are_read_once_with_any_crash(
    tmp_path: Path, lines: list[str], ending: str, closed: bool, n: int, taken: list[Step]
) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes((ending.join(lines) + (ending if closed and lines else "")).encode())
    expected = lines if closed or lines[-1:] != [""] else lines[:-1]
    assert Counter(read(text(file), n, taken)) == Counter(expected)
    if n == 1:
        assert read(text(file), n, taken) == expected


@in_a_directory
@given(taken=steps, n=sharing)
@pytest.mark.parametrize("form", ["parquet", "avro", "orc"])
def test_records_are_read_once_with_any_crash(
    order_files: Path, form: str, taken: list[Step], n: int
) -> None:
    config = files(form, order_files / f"orders.{form}", Order)
    results = read(config, n, taken)
    assert Counter(results) == Counter(orders)
    if n == 1:
        assert results == orders


@pytest.mark.parametrize("form", ["parquet", "avro", "orc"])
def test_record_has_declared_type(order_files: Path, form: str) -> None:
    path = order_files / f"orders.{form}"
    assert read(files(form, path)) == list(map(as_dict, orders))
    assert read(files(form, path, Pair)) == [Pair(order.item, order.id) for order in orders]
    assert read(files(form, path, tuple[str, float], ["item", "price"])) == [
        (o.item, o.price) for o in orders
    ]
    assert read(files(form, path, int, ["id"])) == [order.id for order in orders]
    assert read(files(form, path, None, ["id"])) == [{"id": order.id} for order in orders]


@pytest.mark.parametrize("form", ["parquet", "avro", "orc"])
def test_missing_column_is_named_with_existing_ones(order_files: Path, form: str) -> None:
    @dataclass(frozen=True)
    class Customer:
        id: int
        town: str

    path = order_files / f"orders.{form}"
    with pytest.raises(TaskError, match=rf"orders\.{form}.* town; .* id, item, price"):
        read(files(form, path, Customer))
    with pytest.raises(TaskError, match=rf"orders\.{form} has no column town; it has id, item, price"):
        read(files(form, path, None, ["town"]))


def test_directories_by_column_have_its_values(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Part:
        a: int
        day: int | None
        town: str

    for form, write in (("parquet", pq.write_table), ("orc", orc.write_table)):
        for place, value in (("day=3/town=St.%2FGallen", 1), (f"day={NO_VALUE}/town=a", 2)):
            (tmp_path / form / place).mkdir(parents=True)
            write(pa.table({"a": [value]}), tmp_path / form / place / f"x.{form}")
        path = tmp_path / form
        assert Counter(read(files(form, path, Part))) == Counter(
            [Part(1, 3, "St./Gallen"), Part(2, None, "a")]
        )
        rows = [{"a": 1, "day": "3", "town": "St./Gallen"}, {"a": 2, "day": None, "town": "a"}]
        assert sorted(read(files(form, path)), key=str) == rows
        assert Counter(
            read(
                files(form, path, str, ["town"]),
            )
        ) == Counter(["St./Gallen", "a"])
        with pytest.raises(TaskError, match=r"the value of the directory town=.* is no int"):
            read(files(form, path, int, ["town"]))


def test_column_of_other_type_is_rejected_by_name(order_files: Path) -> None:
    with pytest.raises(TaskError, match=r"orders\.parquet: column item is string, which is no int"):
        read(files("parquet", order_files / "orders.parquet", int, ["item"]))


def test_missing_value_is_rejected_unless_optional(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Optional:
        a: int | None

    @dataclass(frozen=True)
    class Required:
        a: int

    file = tmp_path / "some.parquet"
    pq.write_table(pa.table({"a": pa.array([1, None, 3], pa.int16())}), file)
    assert [item.a for item in read(files("parquet", file, Optional))] == [1, None, 3]
    with pytest.raises(TaskError, match=r"column a has no value in some record: declare it as int \| None"):
        read(files("parquet", file, Required))


def test_directories_and_globs_have_finished_files_only(tmp_path: Path) -> None:
    for name in ("b/1.txt", "a.txt", "b/.2.txt", "_temporary/3.txt", "b/c/4.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    assert read(text(tmp_path)) == ["a.txt", "b/1.txt", "b/c/4.log"]
    assert read(text(f"file://{tmp_path}")) == ["a.txt", "b/1.txt", "b/c/4.log"]
    assert read(text(f"{tmp_path}/*.txt")) == ["a.txt"]
    assert read(text(f"{tmp_path}/**/*.txt")) == ["a.txt", "b/1.txt"]
    assert read(text(f"{tmp_path}/b/[!a-c]*", f"{tmp_path}/?.txt")) == ["b/1.txt", "a.txt"]
    assert read(text(tmp_path / "b" / ".2.txt")) == ["b/.2.txt"]


def test_file_given_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    assert read(text(tmp_path / "a.txt", tmp_path)) == ["a"]


def test_missing_path_is_named(tmp_path: Path) -> None:
    for path, output in (
        (tmp_path / "none.txt", "no such file or directory: .*none.txt"),
        (tmp_path / "none" / "*.txt", "no such directory: .*/none/"),
        (tmp_path / "*.txt", r"no file matches .*\*\.txt"),
    ):
        with pytest.raises(TaskError, match=output):
            open_source(text(path))


def test_unreadable_record_is_named_with_position(tmp_path: Path, order_files: Path) -> None:
    whole = (order_files / "orders.avro").read_bytes()
    broken = tmp_path / "broken.avro"
    broken.write_bytes(whole[:-20])
    with pytest.raises(TaskError, match=r"broken\.avro could not be read at byte \d+"):
        read(files("avro", broken))
    broken.write_bytes(b"no Avro at all")
    with pytest.raises(TaskError, match=r"broken\.avro could not be read at byte 0: "):
        read(files("avro", broken))
    with pytest.raises(TaskError, match=r"broken\.avro could not be read at its end"):
        read(files("parquet", broken))
    zipped = tmp_path / "broken.gz"
    zipped.write_bytes(b"no gzip either")
    with pytest.raises(TaskError, match=r"broken\.gz could not be read"):
        read(text(zipped))


def test_restarted_subtask_reads_files_of_first_listing(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("1\n2\n3\n")
    config = text(tmp_path)
    source = open_source(config)
    source.poll(1)
    changelog = list(source.take_changes())
    source.close()
    (tmp_path / "a.txt").write_text("new\n")
    again = open_source(config, changelog)
    batch = again.poll(10).batch
    assert batch is not None
    assert batch.values == ["2", "3"]
    assert again.poll(10).has_ended


def test_empty_directory_has_no_records(tmp_path: Path) -> None:
    assert read(text(tmp_path), 2, ["commit", "crash"]) == []


@pytest.mark.parametrize("n", [1, 3])
def test_compressed_text_is_read_by_one_subtask(tmp_path: Path, n: int) -> None:
    lines = list(web_server_log(500))
    with gzip.open(tmp_path / "access.log.gz", "wt") as out:
        out.write("\n".join(lines))
    assert read(text(tmp_path), n, [300, "commit", 50, "crash"]) == lines


def test_bytes_that_are_no_text_do_not_stop_source(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe ok\nb\xc3\n")
    assert read(text(tmp_path)) == ["\ufffd\ufffd ok", "b\ufffd"]


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Checked:
    n: int

    def __post_init__(self) -> None:
        self.n *= 2


@dataclass
class WithoutLayout:
    """Fields without columns of their own have their declared type nevertheless."""

    colour: Colour
    names: set[str]
    checked: Checked | None
    inner: list[Inner]
    anything: Any


@dataclass
class Inner:
    by_name: dict[str, int]


def _write_rows(form: str, file: Path, rows: list[dict[str, Any]]) -> None:
    if form == "parquet":
        inner = pa.list_(pa.struct({"by_name": pa.map_(pa.string(), pa.int64())}))
        types = {
            "colour": pa.string(),
            "names": pa.list_(pa.string()),
            "inner": inner,
            "anything": pa.string(),
        }
        types["checked"] = pa.struct({"n": pa.int64()})
        pq.write_table(pa.Table.from_pylist(rows, pa.schema(types)), file)
        return
    inner_record = {
        "type": "record",
        "name": "I",
        "fields": [{"name": "by_name", "type": {"type": "map", "values": "long"}}],
    }
    checked = {"type": "record", "name": "C", "fields": [{"name": "n", "type": "long"}]}
    fields = {
        "colour": "string",
        "names": {"type": "array", "items": "string"},
        "checked": ["null", checked],
        "inner": {"type": "array", "items": inner_record},
        "anything": "string",
    }
    schema = {"type": "record", "name": "R", "fields": [{"name": k, "type": v} for k, v in fields.items()]}
    with file.open("wb") as out:
        fastavro.writer(out, schema, rows)


@pytest.mark.parametrize("form", ["parquet", "avro"])
def test_field_without_layout_has_declared_type(tmp_path: Path, form: str) -> None:
    right = {
        "colour": "red",
        "names": ["a", "a"],
        "checked": {"n": 2},
        "inner": [{"by_name": {"x": 1}}],
        "anything": "b",
    }
    file = tmp_path / f"some.{form}"
    _write_rows(form, file, [right, {**right, "checked": None, "inner": []}])
    one, two = read(files(form, file, WithoutLayout))
    assert one == WithoutLayout(Colour.RED, {"a"}, Checked(2), [Inner({"x": 1})], "b")
    assert (one.checked.n, two.checked, two.inner) == (4, None, [])
    _write_rows(form, file, [right, {**right, "colour": "green"}])
    with pytest.raises(TaskError, match=f"some.{form}.*green"):
        read(files(form, file, WithoutLayout))


def test_text_and_parquet_are_read_as_columns(tmp_path: Path, order_files: Path) -> None:
    (tmp_path / "a.txt").write_text("a\nb\n")
    for config in (text(tmp_path), files("parquet", order_files / "orders.parquet", Order)):
        batch = open_source(config).poll(10).batch
        assert batch is not None
        assert batch.is_columnar


def test_large_files_are_shared(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{i:06}\n" for i in range(1_000)))
    shares = [committed_records(text(tmp_path), subtask=index, parallelism=4) for index in range(4)]
    assert all(200 <= len(share) <= 300 for share in shares)


paths = st.text(alphabet="ab/*", max_size=8)


@given(paths)
def test_double_star_matches_any_directories(path: str) -> None:
    name = path.replace("*", "x")
    assert bool(source_storage.glob_pattern("**/b").fullmatch(name)) == (
        name == "b" or (name.endswith("/b") and all(name[:-2].split("/")))
    )


def test_unknown_file_system_is_named() -> None:
    with pytest.raises(TaskError, match=r"^nope://bucket cannot be reached: [^\n]*$"):
        open_source(text("nope://bucket/*.txt"))


def test_fsspec_urls_are_read_and_written() -> None:
    memory = fsspec.filesystem("memory")
    for name in ("b/1.txt", "a.txt", "b/.2.txt"):
        memory.pipe(f"/there/{name}", f"{name}\n".encode())
    assert read(text("memory://there")) == ["a.txt", "b/1.txt"]
    assert read(text("memory://there/a.txt")) == ["a.txt"]
    assert read(text("memory://there/**/1.*"), 2) == ["b/1.txt"]
    directory = output_directory.create_output_directory("memory://there/out/")
    directory.begin("part-", 0, 0)
    directory.publish("part-0.txt", lambda out: out.write(b"a\n"))
    assert read(text("memory://there/out")) == ["a"]
