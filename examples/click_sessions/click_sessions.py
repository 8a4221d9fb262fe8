"""Sessions of clicks: the clicks of a user until there is none for a while. Users of phones pause for longer, so the
gap depends on the device.

tailrace run examples/click_sessions/click_sessions.py
"""

from argparse import ArgumentParser
from collections.abc import Iterable
from dataclasses import dataclass

import tailrace as tr

GAPS_MS = {"phone": 60_000, "desk": 20_000}


@dataclass(frozen=True)
class Click:
    user: str
    page: str
    device: str
    at: int
    """In milliseconds since the epoch."""


@dataclass(frozen=True)
class Session:
    user: str
    begin: int
    end: int
    clicks: int
    first_page: str
    last_page: str


def gap_ms(click: Click) -> int:
    """Returns how long a session goes on after a click."""
    return GAPS_MS[click.device]


class Summary(tr.ProcessWindowFunction[Click, Session, str]):
    def process(self, key: str, context: tr.WindowContext, elements: Iterable[Click]) -> Iterable[Session]:
        clicks = sorted(elements, key=lambda click: click.at)
        first, last = clicks[0], clicks[-1]
        yield Session(key, first.at, last.at, len(clicks), first.page, last.page)


def main() -> None:
    parser = ArgumentParser("click_sessions", description="Sessions of clicks.")
    parser.add_argument("--clicks", default="clicks", help="a topic of clicks as JSON")
    parser.add_argument("--sessions", default="sessions", help="a topic")
    parser.add_argument("--bounded", action="store_true", help="end at the present end of the topic")
    options = parser.parse_args()
    env = tr.StreamExecutionEnvironment.get_execution_environment()
    source = tr.KafkaSource(options.clicks, tr.Formats.json(), bounded=options.bounded, output_type=Click)
    by_time = tr.WatermarkStrategy.for_bounded_out_of_orderness(seconds=10).with_timestamp_assigner("at")
    sessions = (
        env.from_source(source, by_time, "Clicks")
        .key_by("user")
        .window(tr.EventTimeSessionWindows.with_dynamic_gap(gap_ms))
        .process(Summary())
        .name("Sessions")
        .uid("sessions")
    )
    sessions.sink_to(tr.KafkaSink(options.sessions, tr.Formats.json(), key="user"))
    env.execute("Click sessions")


if __name__ == "__main__":
    main()
