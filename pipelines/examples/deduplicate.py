"""Removes duplicates of events: files of JSON lines with an `id` and a time `at`, in seconds.

tailrace run pipelines/examples/deduplicate.py --input events.jsonl --forget-after 60
"""

import json
from argparse import ArgumentParser
from typing import Any

import tailrace as tr

parser = ArgumentParser("deduplicate", description="Events that were sent more than once, once.")
parser.add_argument("--input", required=True, nargs="+", help="files, directories or patterns")
parser.add_argument("--forget-after", type=float, default=60, help="seconds")
options = parser.parse_args()
forget_after_ms = round(options.forget_after * 1000)


class FirstOfItsId(tr.KeyedProcessFunction[str, Any, Any]):
    def open(self, context: tr.RuntimeContext) -> None:
        self.until = context.get_state(tr.ValueStateDescriptor[int]("until", int, default=0))

    def process_element(self, value: Any, context: tr.KeyedContext[str]) -> Any:
        if context.timestamp > (self.until.value() or 0):
            self.until.update(context.timestamp + forget_after_ms)
            context.timer_service.register_event_time_timer(context.timestamp + forget_after_ms)
            yield value

    def on_timer(self, timestamp: int, context: tr.OnTimerContext[str]) -> None:
        if self.until.value() == timestamp:
            self.until.clear()


env = tr.StreamExecutionEnvironment.get_execution_environment()
by_time = tr.WatermarkStrategy.for_bounded_out_of_orderness(seconds=5)
by_time = by_time.with_timestamp_assigner(lambda event: round(event["at"] * 1000))
events = env.read_text_file(*options.input).map(json.loads).assign_timestamps_and_watermarks(by_time)
events.key_by(lambda event: event["id"]).process(FirstOfItsId()).print()
env.execute("Deduplicate")
