"""The failed requests of a service: JSON lines into Parquet files, read and written by Spark.

    tailrace run pipelines/examples/failed_requests.py --input requests.jsonl --output report/

Spark evaluates the condition where it reads: of a hundred requests, Python gets only the one that has failed.
"""

from argparse import ArgumentParser
from dataclasses import dataclass

import tailrace as tr

parser = ArgumentParser("failed_requests", description="The failed requests of a service.")
parser.add_argument("--input", required=True, nargs="+", help="JSON lines: files, directories or patterns")
parser.add_argument("--output", required=True, help="a directory")
options = parser.parse_args()


@dataclass(frozen=True)
class Request:
    at: int
    path: str
    status: int
    milliseconds: float


env = tr.StreamExecutionEnvironment.get_execution_environment()
requests = env.from_source(tr.SparkSource("json", *options.input, output_type=Request))
failed = requests.where("status >= 500").select("at, path, milliseconds / 1000 AS seconds")
failed.sink_to(tr.SparkSink("parquet", options.output))
env.execute("Failed requests")
