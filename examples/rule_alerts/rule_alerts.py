"""Alerts by rules that change while the job runs: a rule is a message in a topic, and every subtask has all of them in
broadcast state.

tailrace run examples/rule_alerts/rule_alerts.py
"""

from argparse import ArgumentParser
from collections.abc import Iterable
from dataclasses import dataclass

import tailrace as tr


@dataclass(frozen=True)
class Measurement:
    machine: str
    metric: str
    value: float
    at: int


@dataclass(frozen=True)
class Rule:
    """Alerts if a metric is above `most` `times` times in a row; 0 times: the rule is removed."""

    name: str
    metric: str
    most: float
    times: int
    at: int


RULES = tr.MapStateDescriptor("rules", str, Rule)
Alert = dict[str, object]


class Evaluator(tr.KeyedBroadcastProcessFunction[str, Measurement, Rule, Alert]):
    """Counts, for each machine and rule, how often in a row the rule was broken.

    A measurement waits until both streams have passed its time: then all rules from before it are here.
    """

    def open(self, context: tr.RuntimeContext) -> None:
        self.broken = context.get_map_state(tr.MapStateDescriptor("broken", str, int))
        self.waiting = context.get_map_state(tr.MapStateDescriptor("waiting", int, list[Measurement]))

    def process_element(self, value: Measurement, context: tr.KeyedReadOnlyBroadcastContext[str]) -> None:
        self.waiting[value.at] = [*self.waiting.get(value.at, []), value]
        context.timer_service.register_event_time_timer(value.at)

    def process_broadcast_element(self, value: Rule, context: tr.KeyedBroadcastContext[str]) -> None:
        rules = context.get_broadcast_state(RULES)
        if value.times:
            rules[value.name] = value
        elif value.name in rules:
            del rules[value.name]

    def on_timer(self, timestamp: int, context: tr.BroadcastOnTimerContext[str]) -> Iterable[Alert]:
        for measurement in self.waiting.pop(timestamp):
            for name, rule in context.get_broadcast_state(RULES).items():
                if rule.metric != measurement.metric:
                    continue
                times = self.broken.get(name, 0) + 1 if measurement.value > rule.most else 0
                self.broken[name] = times
                if times == rule.times:
                    yield {"machine": measurement.machine, "rule": name, "at": measurement.at}


def main() -> None:
    parser = ArgumentParser("rule_alerts", description="Alerts by rules that change while the job runs.")
    parser.add_argument("--measurements", default="measurements", help="a topic of measurements as JSON")
    parser.add_argument("--rules", default="rules", help="a topic of rules as JSON")
    parser.add_argument("--alerts", default="rule-alerts", help="a topic")
    parser.add_argument("--bounded", action="store_true", help="end at the present end of the topics")
    options = parser.parse_args()
    env = tr.StreamExecutionEnvironment.get_execution_environment()
    json, bounded = tr.Formats.json(), options.bounded
    # Rules are rare: a silent topic of rules must not hold measurements back.
    by_time = (
        tr.WatermarkStrategy.for_monotonous_timestamps()
        .with_timestamp_assigner("at")
        .with_idleness(seconds=1)
    )
    measurements = env.from_source(
        tr.KafkaSource(options.measurements, json, bounded=bounded, output_type=Measurement),
        by_time,
        "Measurements",
    )
    rules = env.from_source(
        tr.KafkaSource(options.rules, json, bounded=bounded, output_type=Rule), by_time, "Rules"
    )
    alerts = (
        measurements.key_by("machine").connect(rules.broadcast(RULES)).process(Evaluator(), output_type=dict)
    )
    alerts.uid("evaluator").sink_to(tr.KafkaSink(options.alerts, json, key=lambda alert: alert["machine"]))
    env.execute("Alerts by rules")


if __name__ == "__main__":
    main()
