"""The most requested pages in each window of a web server's log.

    tailrace run pipelines/examples/top_pages.py --input access.log --top 3 --window-minutes 10

The counts of a window's pages have the window's last millisecond as their timestamp, so the second window of that size
contains all of them.
"""

from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import tailrace as tr
from tailrace.pipelines.examples.web_log import Hit, hits

parser = ArgumentParser("top_pages", description="The most requested pages of a web site.")
parser.add_argument("--input", required=True, nargs="+", help="files, directories or patterns")
parser.add_argument("--top", type=int, default=3, help="how many pages")
parser.add_argument("--window-minutes", type=float, default=10)
options = parser.parse_args()
top: int = options.top


def counted(path: str, context: tr.WindowContext, requests: Iterable[Hit]) -> Iterator[tuple[str, int]]:
    yield path, len(list(requests))


def best(context: tr.WindowContext, counts: Iterable[tuple[str, int]]) -> Iterator[str]:
    pages = sorted(counts, key=lambda page: (-page[1], page[0]))[:top]
    begin = datetime.fromtimestamp(context.window.start / 1000, UTC)
    yield f"{begin:%H:%M} " + ", ".join(f"{path} {count}" for path, count in pages)


env = tr.StreamExecutionEnvironment.get_execution_environment()
by_time = tr.WatermarkStrategy.for_bounded_out_of_orderness(seconds=10).with_timestamp_assigner("at")
log = env.read_text_file(*options.input).flat_map(hits).assign_timestamps_and_watermarks(by_time)
windows = tr.TumblingEventTimeWindows.of(seconds=options.window_minutes * 60)
log.key_by("path").window(windows).process(counted).window_all(windows).process(best).print()
env.execute("Top pages")
