"""Alerts when a small payment of a card is followed by a large one within a minute: thieves try a card before they use
it. Flink's documentation tells of the same program in Java.

tailrace run examples/fraud_detection/fraud_detection.py
"""

from argparse import ArgumentParser
from collections.abc import Iterable
from dataclasses import dataclass

import tailrace as tr

SMALL, LARGE = 1.0, 500.0
MINUTE_MS = 60_000


@dataclass(frozen=True)
class Payment:
    card: str
    amount: float
    at: int
    """In milliseconds since the epoch."""


@dataclass(frozen=True)
class Alert:
    card: str
    amount: float
    at: int


class FraudDetector(tr.KeyedProcessFunction[str, Payment, Alert]):
    """Keeps the time of the last small payment of each card, for a minute."""

    def open(self, context: tr.RuntimeContext) -> None:
        self.tried = context.get_state(tr.ValueStateDescriptor("tried", int))

    def process_element(self, value: Payment, context: tr.KeyedContext[str]) -> Iterable[Alert]:
        tried = self.tried.value()
        if value.amount > LARGE and tried is not None and value.at - tried <= MINUTE_MS:
            yield Alert(value.card, value.amount, value.at)
        if value.amount < SMALL:
            self.tried.update(value.at)
            context.timer_service.register_event_time_timer(value.at + MINUTE_MS + 1)
        else:
            self.tried.clear()

    def on_timer(self, timestamp: int, context: tr.OnTimerContext[str]) -> None:
        tried = self.tried.value()
        if tried is not None and tried + MINUTE_MS < timestamp:
            self.tried.clear()


def main() -> None:
    parser = ArgumentParser("fraud_detection", description="Finds payments by stolen cards.")
    parser.add_argument("--payments", default="payments", help="a topic of payments as JSON, the card as key")
    parser.add_argument("--alerts", default="alerts", help="a topic")
    parser.add_argument("--bounded", action="store_true", help="end at the present end of the topic")
    options = parser.parse_args()
    env = tr.StreamExecutionEnvironment.get_execution_environment()
    source = tr.KafkaSource(options.payments, tr.Formats.json(), bounded=options.bounded, output_type=Payment)
    in_order = tr.WatermarkStrategy.for_bounded_out_of_orderness(seconds=1).with_timestamp_assigner("at")
    payments = env.from_source(source, in_order, "Payments")
    alerts = payments.key_by("card").process(FraudDetector()).name("Fraud detector").uid("fraud-detector")
    alerts.sink_to(tr.KafkaSink(options.alerts, tr.Formats.json(), key="card"))
    env.execute("Fraud detection")


if __name__ == "__main__":
    main()
