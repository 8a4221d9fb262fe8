"""Cards that have spent more than their country allows: two Kafka topics of JSON, read to their ends.

tailrace run pipelines/examples/limits.py spending limits
"""

from argparse import ArgumentParser
from typing import Any

import tailrace as tr

parser = ArgumentParser("limits", description="Cards that have spent too much.")
parser.add_argument("topics", nargs=2, help="of payments, and of limits")
payments, limits = parser.parse_args().topics
LIMITS = tr.MapStateDescriptor[str, float]("limits", str, float)


class AboveLimit(tr.KeyedBroadcastProcessFunction[Any, Any, Any, str]):
    def open(self, context: tr.RuntimeContext) -> None:
        self.spent = context.get_state(tr.ValueStateDescriptor[float]("spent", float, 0.0))

    def process_element(self, value: Any, context: tr.KeyedReadOnlyBroadcastContext[Any]) -> None:
        self.spent.update((self.spent.value() or 0.0) + value["amount"])
        context.timer_service.register_event_time_timer(1 << 62)  # at the end

    def process_broadcast_element(self, value: Any, context: tr.KeyedBroadcastContext[Any]) -> None:
        context.get_broadcast_state(LIMITS)[value["country"]] = float(value["limit"])

    def on_timer(self, timestamp: int, context: tr.BroadcastOnTimerContext[Any]) -> Any:
        spent, limits = self.spent.value() or 0.0, context.get_broadcast_state(LIMITS)
        if spent > limits.get(context.current_key[0], spent):
            yield f"{context.current_key[1]} has spent {spent:g}"


env = tr.StreamExecutionEnvironment.get_execution_environment()
spent = env.from_source(tr.KafkaSource(payments, tr.Formats.json(), bounded=True))
allowed = env.from_source(tr.KafkaSource(limits, tr.Formats.json(), bounded=True))
keyed = spent.key_by(lambda payment: (payment["country"], payment["card"]))
keyed.connect(allowed.broadcast(LIMITS)).process(AboveLimit()).print()
env.execute("Limits")
