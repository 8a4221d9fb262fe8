"""PyFlink's datastream/state_access.py."""

from collections.abc import Iterator

from tailrace import (
    KeyedContext,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)

AMOUNTS = [
    ("Ann", 110.25), ("Bob", 30.5), ("Ann", 20.0), ("Bob", 53.125), ("Ann", 13.5), ("Bob", 3.25), ("Ann", 20.5),
]  # fmt: skip


class Sum(KeyedProcessFunction[str, tuple[str, float], tuple[str, float]]):
    def open(self, context: RuntimeContext) -> None:
        self.state = context.get_state(ValueStateDescriptor("state", float))

    def process_element(
        self, value: tuple[str, float], context: KeyedContext[str]
    ) -> Iterator[tuple[str, float]]:
        current = self.state.value()
        if current is None:
            current = 0
        current += value[1]
        self.state.update(current)
        yield value[0], current


def state_access_demo() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    ds = env.from_collection(AMOUNTS)
    ds.key_by(lambda value: value[0]).process(Sum()).print()
    env.execute()


if __name__ == "__main__":
    state_access_demo()
