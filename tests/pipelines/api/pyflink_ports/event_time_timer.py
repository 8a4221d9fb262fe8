"""PyFlink's datastream/event_time_timer.py."""

from collections.abc import Iterator

from tailrace import (
    KeyedContext,
    KeyedProcessFunction,
    OnTimerContext,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
    WatermarkStrategy,
)

Payment = tuple[int, str, float]
PAYMENTS: list[Payment] = [
    (1_000, "Ann", 110.25), (4_000, "Bob", 30.5), (3_000, "Ann", 20.0), (2_000, "Bob", 53.125),
    (5_000, "Ann", 13.5), (3_000, "Bob", 3.25), (7_000, "Bob", 16.5), (10_000, "Ann", 20.5),
]  # fmt: skip


class Sum(KeyedProcessFunction[str, Payment, tuple[str, float | None]]):
    def open(self, context: RuntimeContext) -> None:
        self.state = context.get_state(ValueStateDescriptor("state", float))

    def process_element(self, value: Payment, context: KeyedContext[str]) -> None:
        current = self.state.value()
        if current is None:
            current = 0
        current += value[2]
        self.state.update(current)
        context.timer_service.register_event_time_timer(context.timestamp + 2_000)

    def on_timer(self, timestamp: int, context: OnTimerContext[str]) -> Iterator[tuple[str, float | None]]:
        yield context.current_key, self.state.value()


def event_time_timer_demo() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    ds = env.from_collection(PAYMENTS)
    ds = ds.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_bounded_out_of_orderness(seconds=2).with_timestamp_assigner(
            lambda value: value[0]
        )
    )
    ds.key_by(lambda value: value[1]).process(Sum()).print()
    env.execute()


if __name__ == "__main__":
    event_time_timer_demo()
