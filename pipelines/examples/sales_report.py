"""The sales of each product on each day: Parquet files of sales into Parquet files with one row per product and day.

    tailrace run pipelines/examples/sales_report.py --input sales/ --output report/

The source reads only the columns of `Sale`. A file of the report appears when it is complete.
"""

from argparse import ArgumentParser
from dataclasses import dataclass
from datetime import timedelta

import tailrace as tr

parser = ArgumentParser("sales_report", description="What was sold of each product on each day.")
parser.add_argument("--input", required=True, nargs="+", help="Parquet files, directories or patterns")
parser.add_argument("--output", required=True, help="a directory")
options = parser.parse_args()


@dataclass(frozen=True)
class Sale:
    product: str
    pieces: int
    price: float
    at: int  # milliseconds since the epoch; in a report, of the first sale


def together(a: Sale, b: Sale) -> Sale:
    return Sale(a.product, a.pieces + b.pieces, a.price + b.price, min(a.at, b.at))


env = tr.StreamExecutionEnvironment.get_execution_environment()
by_time = tr.WatermarkStrategy.for_bounded_out_of_orderness(timedelta(hours=1)).with_timestamp_assigner("at")
sales = env.read_parquet(*options.input, output_type=Sale).assign_timestamps_and_watermarks(by_time)
days = sales.key_by("product").window(tr.TumblingEventTimeWindows.of(timedelta(days=1)))
days.reduce(together).sink_to(tr.FileSink(options.output, "parquet"))
env.execute("Sales report")
