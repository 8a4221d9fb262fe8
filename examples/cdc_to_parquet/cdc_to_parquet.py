"""Changes of a database's table, as Debezium writes them to Kafka, become Parquet files: one directory for each day,
with the row after each change, which kind of change it was, and when.

tailrace run examples/cdc_to_parquet/cdc_to_parquet.py --output changes
"""

from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import tailrace as tr


@dataclass(frozen=True)
class Customer:
    id: int
    name: str
    city: str


@dataclass(frozen=True)
class Change:
    id: int
    operation: str
    name: str | None
    city: str | None
    at: int
    """In milliseconds since the epoch."""


OPERATIONS = {"c": "insert", "r": "insert", "u": "update", "d": "delete"}


def to_change(event: tr.ChangeEvent[Customer]) -> Iterator[Change]:
    """Yields the change of a row; a truncated table has none."""
    row = event.before if event.op == "d" else event.after
    if row is not None:
        is_deleted = event.op == "d"
        name, city = (None, None) if is_deleted else (row.name, row.city)
        yield Change(row.id, OPERATIONS[event.op], name, city, event.ts_ms or 0)


def main() -> None:
    parser = ArgumentParser("cdc_to_parquet", description="Changes of a table as Parquet files.")
    parser.add_argument("--changes", default="shop.public.customers", help="Debezium's topic of the table")
    parser.add_argument("--output", required=True, help="a directory")
    parser.add_argument("--bounded", action="store_true", help="end at the present end of the topic")
    options = parser.parse_args()
    env = tr.StreamExecutionEnvironment.get_execution_environment()
    source = tr.KafkaSource(
        options.changes,
        tr.Formats.debezium_json(),
        bounded=options.bounded,
        output_type=tr.ChangeEvent[Customer],
        on_tombstone="skip",
    )
    by_time = tr.WatermarkStrategy.for_bounded_out_of_orderness(seconds=5).with_timestamp_assigner("at")
    changes = env.from_source(source, name="Customers").flat_map(to_change)
    changes.assign_timestamps_and_watermarks(by_time).sink_to(
        tr.FileSink(
            options.output,
            format="parquet",
            bucket=["day=%Y-%m-%d"],
            roll_interval=timedelta(minutes=5),
            success_files=True,
        )
    )
    env.execute("Changes to Parquet")


if __name__ == "__main__":
    main()
