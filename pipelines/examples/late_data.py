"""The highest reading of each sensor and minute, and the readings that arrive too late for it: three Kafka topics.

    tailrace run pipelines/examples/late_data.py --input readings --highest highest --late late

A reading is JSON: {"sensor": "a", "degrees": 21.5, "at": 1700000000.0}, its time in seconds since the epoch.
"""

from argparse import ArgumentParser
from typing import NamedTuple

import tailrace as tr

parser = ArgumentParser("late_data", description="The highest reading of each sensor and minute.")
for topic in ("input", "highest", "late"):
    parser.add_argument(f"--{topic}", required=True, help="a topic")
options = parser.parse_args()


class Reading(NamedTuple):
    sensor: str
    degrees: float
    at: float


late = tr.OutputTag[Reading]("late", Reading)
by_time = tr.WatermarkStrategy.for_bounded_out_of_orderness(seconds=5)
by_time = by_time.with_timestamp_assigner(lambda reading: round(reading.at * 1000))

env = tr.StreamExecutionEnvironment.get_execution_environment()
source = tr.KafkaSource(options.input, tr.Formats.json(), output_type=Reading)
minutes = env.from_source(source, by_time).key_by("sensor").window(tr.TumblingEventTimeWindows.of(seconds=60))
highest = minutes.side_output_late_data(late).max_by("degrees")
highest.sink_to(tr.KafkaSink(options.highest, key="sensor"))
highest.get_side_output(late).sink_to(tr.KafkaSink(options.late, key="sensor"))
env.execute("Late data")
