"""PyFlink's datastream/windowing/session_with_gap_window.py."""

from collections.abc import Iterable

from tailrace import (
    EventTimeSessionWindows,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    WatermarkStrategy,
    WindowContext,
)

Hit = tuple[str, int]
Count = tuple[str, int, int, int]
HITS: list[Hit] = [("hi", 1), ("hi", 2), ("hi", 3), ("hi", 4), ("hi", 8), ("hi", 9), ("hi", 15)]


class CountWindowProcessFunction(ProcessWindowFunction[Hit, Count, str]):
    def process(self, key: str, context: WindowContext, elements: Iterable[Hit]) -> Iterable[Count]:
        return [(key, context.window.start, context.window.end, len(list(elements)))]

    def clear(self, context: WindowContext) -> None:
        pass


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    data_stream = env.from_collection(HITS, tuple[str, int])

    watermark_strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda value: value[1]
    )
    ds = (
        data_stream.assign_timestamps_and_watermarks(watermark_strategy)
        .key_by(lambda value: value[0], key_type=str)
        .window(EventTimeSessionWindows.with_gap(milliseconds=5))
        .process(CountWindowProcessFunction(), tuple[str, int, int, int])
    )

    ds.print()

    env.execute()


if __name__ == "__main__":
    main()
