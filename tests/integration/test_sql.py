"""SQL queries over the log with a real Spark: Kafka, Avro and Parquet give the same rows, and the same errors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sql_questions import QueriedLog, QueryRejected, SqlQueries, sql_queries
from terminal_prompt import TerminalPrompt

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas.event import Event
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.configuration import Configuration
from tailrace.services.history.archive.exporter import EventSelection
from tailrace.services.history.log_position import first_offset
from tailrace.services.history.retention.archiver import archive_log, archive_of
from tailrace.services.history.retention.log_archive import ClusterArchive
from tailrace.services.history.sql.scan import rows
from tailrace.services.history.sql.tables import LOG, UNREADABLE, table
from tailrace.services.log import EventLog
from tailrace.services.log.factory import create_admin_client
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.log.truncation import delete_before
from tailrace.services.resource_manager.task_manager_slot import SlotState

from ..services.history.archive.archive_files import create_log, export_files, with_foreign
from ..services.snapshots.simulated_logs import LONG, create_quiet_replica, history
from .test_history import log_of as kafka_log_of

pytestmark = pytest.mark.timeout(600)
"""A Spark that starts on a busy machine takes its time."""
EXAMPLES = Path(__file__).parents[2] / "examples" / "sql"
GOLDEN = Path(__file__).parents[1] / "golden" / "0.1.0"
SPECIAL = "all [of] it {a,b} ü%20*?.parquet"
"""A name that would mean something to Spark."""


@pytest.fixture(scope="module")
def spark() -> Iterator[SqlQueries]:
    with sql_queries() as queries:
        yield queries


@pytest.fixture(scope="module")
def memory_log() -> MemoryEventLog:
    return with_foreign(history(LONG))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, memory_log: MemoryEventLog) -> dict[str, Path]:
    result = tmp_path_factory.mktemp("files")
    paths = {kind: result / name for kind, name in (("avro", "h.avro"), ("parquet", SPECIAL))}
    for path in paths.values():
        export_files(memory_log, path)
    return paths


def held(log: EventLog, name: str) -> list[dict[str, Any]]:
    """Returns the rows of a table, read without Spark."""
    return [row for batch in rows(log, table(name), 0, log.end()) for row in batch.to_pylist()]


NESTED = ["dispatcher_SubmitJob", "job_master_OfferSlots", "resource_manager_RegisterTaskExecutor"]
"""With structs, arrays, maps and bytes."""


@pytest.mark.parametrize("kind", ["avro", "parquet"])
def test_spark_reads_rows_of_file(
    kind: str, files: dict[str, Path], memory_log: MemoryEventLog, spark: SqlQueries
) -> None:
    log = QueriedLog(files[kind], offsets_a_task=200)
    for name in (LOG, UNREADABLE, "dispatcher_ShutDownCluster", *NESTED):
        result = spark.table(log, name)
        assert result.column_names == table(name).columns.names
        assert sorted(result.to_pylist(), key=lambda row: row["offset"]) == held(memory_log, name), name


def test_spark_reads_rows_of_kafka_and_of_archive(
    kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path, spark: SqlQueries
) -> None:
    live = kafka_log_of(kafka.bootstrap_servers, cluster_id)
    try:
        live.append([Event(record.header, record.body) for record in history(LONG)])
        live.append_all([b"no event", None])
        where = (
            ("bootstrap.servers", kafka.bootstrap_servers),
            ("cluster.id", cluster_id),
            ("high-availability.storageDir", str(tmp_path)),
        )
        log = QueriedLog(settings=where, offsets_a_task=100)
        for name in (LOG, UNREADABLE, "job_master_StartJob", "task_executor_SubmitTask"):
            result = spark.table(log, name).to_pylist()
            assert sorted(result, key=lambda row: row["offset"]) == held(live, name), name
        some = QueriedLog(settings=where, first=100, last=149)
        assert spark.ask(some, "SELECT min(offset) a, max(offset) b, count(*) n FROM log") == [
            {"a": 100, "b": 149, "n": 50}
        ]
        whole = spark.table(log, LOG).to_pylist()
        archive = archive_of(live, ClusterArchive.from_configuration(Configuration(dict(where))))
        assert archive is not None
        archive_log(live, archive, 331)
        delete_before(create_admin_client(Configuration(dict(where))), live.topic, {0: 330})
        assert first_offset(live) == 330
        cut = QueriedLog(settings=where, offsets_a_task=100)
        assert spark.table(cut, LOG).to_pylist() == whole
    finally:
        live.close()


SECONDS = timedelta(seconds=1)
ANSWERS: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("mean_time_to_recover", "one_task_fails_and_is_restarted_alone"): [
        {
            "job_id": "j1",
            "failures": 1,
            "recovered": 1,
            "mean_time_to_recover": 2 * SECONDS,
            "longest": 2 * SECONDS,
        }
    ],
    ("mean_time_to_recover", "a_task_executor_is_lost_and_lives"): [
        {
            "job_id": "j1",
            "failures": 2,
            "recovered": 2,
            "mean_time_to_recover": 2 * SECONDS,
            "longest": 2 * SECONDS,
        }
    ],
    ("tasks_lost", "a_task_executor_is_lost_and_lives"): [
        {"resource_id": "te-1", "tasks": 2, "failed": 0, "lost_with_it": 2},
        {"resource_id": "te-2", "tasks": 2, "failed": 0, "lost_with_it": 0},
    ],
    ("tasks_lost", "one_task_fails_and_is_restarted_alone"): [
        {"resource_id": "te-1", "tasks": 6, "failed": 1, "lost_with_it": 0},
    ],
    ("who_cancelled_what", "a_slot_is_offered_while_its_request_is_cancelled"): [
        {
            "time": datetime.fromtimestamp(1000, UTC),
            "who": "client/test",
            "job_id": "j1",
            "job": "WindowWordCount",
            "outcome": "CANCELED",
            "took": 0 * SECONDS,
        }
    ],
    ("checkpoint_durations", "a_savepoint_is_taken"): [
        {
            "job_id": "j1",
            "job": "WindowWordCount",
            "triggered": 1,
            "completed": 1,
            "aborted": 0,
            "median_ms": 0.0,
            "longest_ms": 0.0,
            "largest_bytes": 0,
        }
    ],
}


@pytest.mark.parametrize(("example", "scenario"), ANSWERS)
def test_example_gives_same_answer_for_avro_and_parquet(
    example: str, scenario: str, tmp_path: Path, spark: SqlQueries
) -> None:
    query = (EXAMPLES / f"{example}.sql").read_text("utf-8")
    export_files(create_log(scenario), parquet := tmp_path / "h.parquet")
    assert spark.ask(GOLDEN / f"{scenario}.avro", query) == ANSWERS[example, scenario]
    assert spark.ask(parquet, query) == ANSWERS[example, scenario]


@pytest.mark.parametrize("seed", [4, 13])
def test_slot_usage_equals_that_of_resource_manager(seed: int, tmp_path: Path, spark: SqlQueries) -> None:
    """In these histories no deposed leader says something of slots: the query would count that, as it says."""
    query = (EXAMPLES / "slot_utilisation.sql").read_text("utf-8")
    export_files(create_log(seed), path := tmp_path / "h.parquet")
    reports = spark.ask(path, query)
    replica, known = create_quiet_replica(), {}
    for record in history(seed):
        replica.apply(record)
        manager = replica.states.get("resource_manager")
        workers = () if manager is None else manager.slot_manager.slots.workers.values()
        slots = [slot for worker in workers for slot in worker.slots.values()]
        known[record.offset] = (len(slots), sum(slot.state is SlotState.ALLOCATED for slot in slots))
    assert {report["offset"]: (report["slots"], report["used"]) for report in reports} == {
        row["offset"]: known[row["offset"]] for row in reports
    }


def test_every_example_is_tested() -> None:
    asked = {example for example, _ in ANSWERS} | {"slot_utilisation"}
    assert asked == {path.stem for path in EXAMPLES.glob("*.sql")}


def test_column_missing_in_older_export_is_null(
    files: dict[str, Path], tmp_path: Path, spark: SqlQueries
) -> None:
    older = rewritten(files["parquet"], tmp_path / "older.parquet", _without)
    assert (
        spark.ask(older, "SELECT count(*) n, count(traceparent) t, count(event_id) e FROM log")[0]["t"] == 0
    )
    both = "SELECT offset, job_id, execution_state FROM job_master_UpdateTaskExecutionState ORDER BY offset"
    assert spark.ask(older, both) == spark.ask(files["parquet"], both)
    lacking = "SELECT count(*) n, count(execution_attempt_id) a FROM job_master_UpdateTaskExecutionState"
    result, whole = spark.ask(older, lacking)[0], spark.ask(files["parquet"], lacking)[0]
    assert (result["n"], result["a"]) == (whole["n"], 0)
    assert spark.ask(older, "SELECT count(*) n, count(job_id) j FROM task_executor_SubmitTask")[0]["j"] == 0


def _without(table: pa.Table) -> pa.Table:
    name = "job_master_UpdateTaskExecutionState"
    column = table.column(name).combine_chunks()
    kept = [i for i in range(column.type.num_fields) if column.type.field(i).name != "execution_attempt_id"]
    less = pa.StructArray.from_arrays(
        [column.field(i) for i in kept], fields=[column.type.field(i) for i in kept], mask=column.is_null()
    )
    table = table.set_column(table.column_names.index(name), name, less)
    return table.drop_columns(["traceparent", "task_executor_SubmitTask"])


def test_events_of_later_release_can_be_queried(
    files: dict[str, Path], tmp_path: Path, spark: SqlQueries
) -> None:
    later = rewritten(files["parquet"], tmp_path / "later.parquet", _with_more)
    assert spark.ask(later, "SELECT offset, type, target, body_time FROM task_executor_Teleport") == [
        {"offset": 0, "type": "task_executor.Teleport", "target": "te-9", "body_time": 1}
    ]
    assert spark.ask(later, "SELECT type FROM log WHERE offset = 0") == [{"type": "task_executor.Teleport"}]


def _with_more(table: pa.Table) -> pa.Table:
    size = table.num_rows
    kind = pa.struct([("target", pa.string()), ("time", pa.int64())])
    memory_log = pa.array([{"target": "te-9", "time": 1}, *[None] * (size - 1)], kind)
    types = pa.array(["task_executor.Teleport", *table.column("type").to_pylist()[1:]])
    table = table.set_column(table.column_names.index("type"), "type", types)
    return table.append_column("task_executor_Teleport", memory_log)


def rewritten(path: Path, into: Path, change: Any) -> Path:
    """Returns a Parquet file as another release may have written it."""
    metadata = pq.ParquetFile(path).metadata.metadata
    kept = {
        key: value
        for key, value in metadata.items()
        if key.startswith(b"tailrace.") and key != b"tailrace.schema"
    }
    changed = change(pq.ParquetFile(path).read())
    pq.write_table(changed.replace_schema_metadata(kept), into)
    return into


def middle_of_column(file: Path, name: str) -> int:
    """Returns the position of a byte of the first row group's values."""
    group = pq.ParquetFile(file).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    (column,) = [column for column in columns if column.path_in_schema == name]
    return int(column.data_page_offset + column.total_compressed_size // 2)


@pytest.mark.parametrize("kind", ["avro", "parquet"])
def test_damage_is_reported_with_position(
    kind: str, files: dict[str, Path], tmp_path: Path, spark: SqlQueries
) -> None:
    data = bytearray(files[kind].read_bytes())
    # In a column that the query reads; or behind the head, which has the schemas.
    at = middle_of_column(files[kind], "type") if kind == "parquet" else len(data) - 500
    data[at] ^= 0xFF
    (path := tmp_path / f"damaged.{kind}").write_bytes(data)
    with pytest.raises(QueryRejected, match="damaged") as failure:
        spark.ask(
            path, "SELECT sum(length(event_id)), max(value) FROM log FULL JOIN unreadable USING (offset)"
        )
    assert failure.value.kind in ("ArchiveError", "CorruptArchive")
    assert "\n" not in str(failure.value)


def test_invalid_query_is_one_error_line(files: dict[str, Path], spark: SqlQueries) -> None:
    with pytest.raises(QueryRejected, match="did you mean task_executor_SubmitTask"):
        spark.ask(files["avro"], "SELECT * FROM task_executor_SubmitTaks")
    for query, why in {
        "SELEC 1": "Syntax error at or near 'SELEC'",
        "SELECT no_such FROM log": "`no_such` cannot be resolved",
        "SELECT raise_error('so be it') FROM log": "so be it",
        "SELECT 1 / (offset - offset) FROM log": "Division by zero",
    }.items():
        with pytest.raises(QueryRejected, match=why) as failure:
            spark.ask(files["avro"], query)
        assert failure.value.kind == "QueryFailed"
        assert "\n" not in str(failure.value)


def test_views_over_tables_are_supported(files: dict[str, Path], spark: SqlQueries) -> None:
    query = """
        CREATE TEMPORARY VIEW mine AS SELECT job_id, status FROM client_JobFinished;
        SHOW VIEWS LIKE 'mine|log';
        SELECT count(*) AS n FROM mine;
    """
    for path in files.values():
        assert spark.ask(path, query.replace("mine", f"of_{path.suffix[1:]}"))[0]["n"] > 0


def test_empty_log_has_empty_tables(tmp_path: Path, spark: SqlQueries) -> None:
    for name in ("empty.avro", "empty.parquet"):
        export_files(log_of_nothing(), path := tmp_path / name, EventSelection(0, 0))
        assert spark.ask(path, "SELECT count(*) AS n FROM log") == [{"n": 0}]
        assert spark.ask(path, "SELECT * FROM client_JobFinished") == []


def log_of_nothing() -> MemoryEventLog:
    return with_foreign([])


def test_command_prints_answer(files: dict[str, Path], memory_log: MemoryEventLog) -> None:
    script = "SELECT count(*) AS n, min(time) AS began FROM log; SELECT * FROM unreadable LIMIT 1; SELECT x"
    result = command("--file", files["parquet"], "-o", "json", stdin=script)
    assert "starting Spark" in result.stderr
    assert "WARN" not in result.stderr
    first, second = map(json.loads, result.stdout.splitlines())
    assert first == {"n": len(held(memory_log, LOG)), "began": "1970-01-01T00:16:40Z"}
    assert second == {"offset": 7, "value": "bm8gZXZlbnQ="}
    assert result.returncode == ExitCode.USAGE
    *_, last = reports = result.stderr.splitlines()
    assert last.startswith("tailrace: A column")
    assert not [line for line in reports if "SQLQueryContextLogger" in line or line.startswith("{")]


def command(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tailrace.services.cli", "sql", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_prompt_accepts_multi_line_statements_and_continues_after_errors(files: dict[str, Path]) -> None:
    with TerminalPrompt("sql", "--file", str(files["avro"])) as prompt:
        assert "h.avro, offsets 0 to " in prompt.until("sql> ", silence_s=300)
        prompt.type("SELECT count(*) AS events\n")
        prompt.until("...> ")
        prompt.type("FROM unreadab\t WHERE offset < 10;\n")
        assert "events" in prompt.until("sql> ")
        prompt.type("SELECT * FROM logg;\n")
        assert "there is no table 'logg': did you mean log?" in prompt.until("sql> ")
        prompt.type("\x04")
        assert prompt.end() == ExitCode.OK
