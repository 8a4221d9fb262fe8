"""PyFlink's datastream/windowing/tumbling_count_window.py: a function instead of its WindowFunction."""

from collections.abc import Iterable, Iterator

from tailrace import StreamExecutionEnvironment, WindowContext

Hit = tuple[int, str]
HITS: list[Hit] = [(1, "hi"), (2, "ho"), (3, "hi"), (4, "ho"), (5, "hi"), (6, "ho"), (6, "ho")]


def total(key: str, context: WindowContext, inputs: Iterable[Hit]) -> Iterator[tuple[str, int]]:
    result = 0
    for i in inputs:
        result += i[0]
    yield key, result


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    data_stream = env.from_collection(HITS, tuple[int, str])

    ds = data_stream.key_by(lambda value: value[1], key_type=str).count_window(3).process(total)

    ds.print()

    env.execute()


if __name__ == "__main__":
    main()
