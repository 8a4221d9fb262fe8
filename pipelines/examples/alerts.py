"""Payments in a Kafka topic: the sum that each card has spent in a day so far, and an alert if it exceeds a limit.

tailrace run pipelines/examples/alerts.py --input payments --alerts alerts --limit 100
"""

from argparse import ArgumentParser

import tailrace as tr

parser = ArgumentParser("alerts", description="What each card has spent in a day so far, and alerts.")
parser.add_argument("--input", required=True, help="a topic of `card,amount`; the time is the message's")
parser.add_argument("--alerts", required=True, help="a topic")
parser.add_argument("--limit", type=float, default=100, help="of a day's payments")
options = parser.parse_args()
limit, day_ms, alert = options.limit, 24 * 60 * 60 * 1000, tr.OutputTag[str]("alert", str)


class Spent(tr.KeyedProcessFunction[str, list[str], str]):
    def open(self, context: tr.RuntimeContext) -> None:
        self.days = context.get_map_state(tr.MapStateDescriptor[int, float]("days", int, float))

    def process_element(self, value: list[str], context: tr.KeyedContext[str]) -> list[str]:
        midnight = context.timestamp // day_ms * day_ms + day_ms
        self.days[midnight] = spent = self.days.get(midnight, 0.0) + float(value[1])
        context.timer_service.register_event_time_timer(midnight)
        if spent > limit:
            context.output(alert, f"{value[0]} has spent {spent:g}")
        return [f"{value[0]} {spent:g}"]

    def on_timer(self, timestamp: int, context: tr.OnTimerContext[str]) -> None:
        del self.days[timestamp]


env = tr.StreamExecutionEnvironment.get_execution_environment()
lines = env.from_source(tr.KafkaSource(options.input), tr.WatermarkStrategy.for_monotonous_timestamps())
spent = lines.map(lambda line: line.split(","), list[str]).key_by(lambda p: p[0], str).process(Spent())
spent.print()
spent.get_side_output(alert).sink_to(tr.KafkaSink(options.alerts, tr.Formats.text()))
env.execute("Alerts")
