"""PyFlink's table/windowing/sliding_window.py: the slide is the second duration of the window."""

from typing import NamedTuple

from tailrace import StreamExecutionEnvironment, WatermarkStrategy


class Price(NamedTuple):
    ts: int
    name: str
    price: float


PRICES = [
    Price(1_000, "ann", 110.5),
    Price(4_000, "bob", 30.25),
    Price(3_000, "ann", 20.0),
    Price(2_000, "bob", 53.5),
    Price(5_000, "ann", 13.25),
    Price(7_000, "bob", 16.5),
    Price(10_000, "ann", 20.75),
]


def sliding_window_demo() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)

    by_ts = WatermarkStrategy.for_bounded_out_of_orderness(seconds=3).with_timestamp_assigner("ts")
    env.create_temporary_view("prices", env.from_collection(PRICES).assign_timestamps_and_watermarks(by_ts))

    env.sql("""
        SELECT name, sum(price) AS total_price, window.start AS w_start, window.end AS w_end
        FROM prices
        GROUP BY window(event_time, '5 seconds', '2 seconds'), name
    """).print()
    env.execute()


if __name__ == "__main__":
    sliding_window_demo()
