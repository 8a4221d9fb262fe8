"""What a row of a file costs that a filter drops: 99 % of the rows, by a condition in Spark and in Python.

One subtask reads JSON lines, CSV, ORC and Parquet, without Kafka. Figures are the CPU time per row of this process, of
Spark's JVM and its workers, after a first round that loads and compiles Spark's classes. `wall` figures depend on other
work of the machine. `range` is a condition by which Spark skips row groups.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
from _report import conditions, median, report
from _scale import scaled
from pyarrow import csv

from tailrace import FileSource, SparkSource, StreamExecutionEnvironment
from tailrace.infra.jars import spark_jars
from tailrace.pipelines.graph.chain import input_types
from tailrace.pipelines.runtime.common.vertex_parts import split_vertex
from tailrace.pipelines.runtime.operators.factory import build_operator
from tailrace.pipelines.runtime.operators.operator import OperatorSetup
from tailrace.pipelines.runtime.operators.task_context import TaskContext
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.runtime.spark.file_client import SparkFileClient
from tailrace.pipelines.runtime.spark.session import start_session
from tailrace.pipelines.runtime.stream_task.input.sources.build import build_source
from tailrace.pipelines.runtime.stream_task.input.sources.source import UNTIL_WOKEN_S, SourceSetup
from tailrace.pipelines.runtime.task_runtime.spark_file_server import SparkFileServer

ROWS = scaled(2_000_000)
ROUNDS = 3
LIMIT = 20_000


class Order(NamedTuple):
    """A row."""

    user: str
    item: str
    amount: int
    price: float


def parsed(line: str) -> Order:
    """Returns the row of a line."""
    return Order(**json.loads(line))


def kept(order: Order) -> bool:
    """The condition in Python."""
    return order.amount == 0


def programs(folder: Path) -> dict[str, Callable[[StreamExecutionEnvironment], Any]]:
    """Returns the programs by name."""
    lines, rows = str(folder / "orders.json"), str(folder / "orders.parquet")
    texts, stripes = str(folder / "orders.csv"), str(folder / "orders.orc")
    return {
        "json_spark": lambda env: env.from_source(SparkSource("json", lines, output_type=Order)).where(
            "amount = 0"
        ),
        "json_python": lambda env: env.read_text_file(lines).map(parsed).filter(kept),
        "parquet_spark": lambda env: env.from_source(SparkSource("parquet", rows, output_type=Order)).where(
            "amount = 0"
        ),
        "csv_spark": lambda env: env.from_source(
            SparkSource("csv", texts, output_type=Order, options={"header": True})
        ).where("amount = 0"),
        "csv_where": lambda env: env.read_csv(texts, output_type=Order).where("amount = 0"),
        "orc_spark": lambda env: env.from_source(SparkSource("orc", stripes, output_type=Order)).where(
            "amount = 0"
        ),
        "orc_where": lambda env: env.read_orc(stripes, output_type=Order).where("amount = 0"),
        "range_spark": lambda env: env.from_source(SparkSource("parquet", rows, output_type=Order)).where(
            f"price < {ROWS // 100 / 8}"
        ),
        "range_where": lambda env: env.from_source(
            FileSource(rows, format="parquet", output_type=Order)
        ).where(f"price < {ROWS // 100 / 8}"),
        "parquet_where": lambda env: env.from_source(
            FileSource(rows, format="parquet", output_type=Order)
        ).where("amount = 0"),
        "parquet_python": lambda env: env.from_source(
            FileSource(rows, format="parquet", output_type=Order)
        ).filter(kept),
    }


class Collector:
    """Counts records behind operators."""

    def __init__(self) -> None:
        self.records = 0

    def emit(self, batch: Batch) -> None:
        """Counts."""
        self.records += len(batch)

    def emit_side(self, tag: str, batch: Batch) -> None: ...
    def emit_watermark(self, watermark: int) -> None: ...
    def emit_idle(self, idle: bool) -> None: ...


class Next:
    """Leads to the next operator."""

    def __init__(self, operator: Any) -> None:
        self._operator = operator

    def emit(self, batch: Batch) -> None:
        """Passes on."""
        self._operator.process(batch)

    def emit_side(self, tag: str, batch: Batch) -> None: ...
    def emit_watermark(self, watermark: int) -> None: ...
    def emit_idle(self, idle: bool) -> None: ...


def run(program: Callable[[StreamExecutionEnvironment], Any], spark: SparkFileClient) -> int:
    """Reads everything; returns the number of kept rows."""
    env = StreamExecutionEnvironment(parallelism=1)
    program(env).print()
    graph = env.get_job_graph()
    (vertex,) = graph.vertices
    parts = split_vertex(vertex, ())
    assert parts.source is not None
    last = Collector()
    operators = []
    for config in parts.rest[:-1]:
        operators.append(
            build_operator(
                OperatorSetup(
                    config, TaskContext(), "c", "j", lambda *_, **__: None, input_types(graph, vertex, config)
                )
            )
        )
    for operator, following in zip(operators, [*operators[1:], None], strict=True):
        operator.output = last if following is None else Next(following)
        operator.open()
    source = build_source(parts.source, parts.head)
    source.open(SourceSetup(parts.source, TaskContext(), lambda: 0, spark=spark))
    while not (polled := source.poll(LIMIT)).has_ended:
        if polled.batch is not None:
            operators[0].process(polled.batch)
        elif polled.wait_s == UNTIL_WOKEN_S:
            time.sleep(0.001)
    source.close()
    return last.records


def cpu_s() -> float:
    """Returns the CPU time of this process, its children, and those of them that have ended."""
    own = psutil.Process()
    total = sum(own.cpu_times()[:4])
    for child in own.children(recursive=True):
        try:
            total += sum(child.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return float(total)


def main() -> None:
    """Runs the benchmark."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        orders = [Order(f"user-{i % 997}", f"item-{i % 89}", i % 100, i / 8) for i in range(ROWS)]
        with (folder / "orders.json").open("w") as out:
            out.writelines(f"{json.dumps(order._asdict())}\n" for order in orders)
        table = pa.table({field: [order[i] for order in orders] for i, field in enumerate(Order._fields)})
        pq.write_table(table, folder / "orders.parquet", row_group_size=50_000)
        csv.write_csv(table, folder / "orders.csv")
        orc.write_table(table, folder / "orders.orc", compression="zstd", stripe_size=4 << 20)
        del orders, table
        (folder / "s").mkdir()
        session = start_session(folder, spark_jars(), 640)
        server = SparkFileServer(folder / "s", lambda: session)
        client = SparkFileClient(folder / "s")
        spent: dict[str, list[tuple[float, float]]] = {}
        for number in range(ROUNDS + 1):
            for way, program in programs(folder).items():
                before, began = cpu_s(), time.monotonic()
                assert run(program, client) == -(-ROWS // 100)
                if number:
                    found = cpu_s() - before, time.monotonic() - began
                    spent.setdefault(way, []).append(found)
        for way, rounds in spent.items():
            figures[f"{way}_cpu_us"] = median([cpu for cpu, _ in rounds]) / ROWS * 1e6
            figures[f"{way}_wall_us"] = median([wall for _, wall in rounds]) / ROWS * 1e6
        server.close()
        session.stop()
    for form in ("json", "parquet"):
        figures[f"{form}_times"] = figures[f"{form}_python_cpu_us"] / figures[f"{form}_spark_cpu_us"]
    for form in ("csv", "orc", "parquet"):
        figures[f"{form}_where_times"] = figures[f"{form}_spark_cpu_us"] / figures[f"{form}_where_cpu_us"]
    report("spark_files", figures, conditions(rows=ROWS, cpus=os.cpu_count()))


if __name__ == "__main__":
    main()
