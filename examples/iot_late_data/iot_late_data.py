"""The mean temperature of each sensor in each minute, though readings come late: what is late by some seconds corrects
the result, and what is later than that goes to a topic of its own, so that nothing is lost.

tailrace run examples/iot_late_data/iot_late_data.py
"""

from argparse import ArgumentParser
from dataclasses import dataclass

import tailrace as tr


@dataclass(frozen=True)
class Reading:
    sensor: str
    celsius: float
    at: int
    """In milliseconds since the epoch, by the clock of the sensor."""


LATE = tr.OutputTag("late", Reading)


def main() -> None:
    parser = ArgumentParser("iot_late_data", description="Mean temperatures of sensors.")
    parser.add_argument("--readings", default="readings", help="a topic of readings as JSON")
    parser.add_argument("--means", default="means", help="a topic; the last message of a key counts")
    parser.add_argument("--late", default="late-readings", help="a topic of readings that came too late")
    parser.add_argument("--bounded", action="store_true", help="end at the present end of the topic")
    options = parser.parse_args()
    env = tr.StreamExecutionEnvironment.get_execution_environment()
    source = tr.KafkaSource(options.readings, tr.Formats.json(), bounded=options.bounded, output_type=Reading)
    # A sensor whose partition is silent for half a minute does not hold the others back.
    by_sensor = (
        tr.WatermarkStrategy.for_bounded_out_of_orderness(seconds=2)
        .with_timestamp_assigner("at")
        .with_idleness(seconds=30)
    )
    means = (
        env.from_source(source, by_sensor, "Readings")
        .key_by("sensor")
        .window(tr.TumblingEventTimeWindows.of(seconds=60))
        .allowed_lateness(seconds=20)
        .side_output_late_data(LATE)
        .aggregate(celsius=tr.Mean("celsius"), readings=tr.Count())
        .uid("means")
    )
    means.sink_to(
        tr.KafkaSink(options.means, tr.Formats.json(), key=lambda mean: f"{mean.sensor} {mean.window_start}")
    )
    means.get_side_output(LATE).sink_to(tr.KafkaSink(options.late, tr.Formats.json(), key="sensor"))
    env.execute("Mean temperatures")


if __name__ == "__main__":
    main()
