"""Visits to a web site: the requests of a host in the server's log, until there are none for a while.

    tailrace run pipelines/examples/sessions.py --input access.log --gap-minutes 30

Session windows use event time: the times in the log.
"""

from argparse import ArgumentParser
from collections.abc import Iterable, Iterator

import tailrace as tr
from tailrace.pipelines.examples.web_log import Hit, hits

parser = ArgumentParser("sessions", description="Visits to a web site, from its server's log.")
parser.add_argument("--input", required=True, nargs="+", help="files, directories or patterns")
parser.add_argument("--gap-minutes", type=float, default=30, help="after which a visit is over")
options = parser.parse_args()


def visit(host: str, context: tr.WindowContext, requests: Iterable[Hit]) -> Iterator[str]:
    times, sizes = zip(*((hit.at, hit.size) for hit in requests), strict=True)
    yield f"{host}: {len(times)} requests in {(max(times) - min(times)) // 1000} s, {sum(sizes)} bytes"


env = tr.StreamExecutionEnvironment.get_execution_environment()
by_time = tr.WatermarkStrategy.for_bounded_out_of_orderness(seconds=10).with_timestamp_assigner("at")
log = env.read_text_file(*options.input).flat_map(hits).assign_timestamps_and_watermarks(by_time)
gap = tr.EventTimeSessionWindows.with_gap(seconds=options.gap_minutes * 60)
log.key_by("host").window(gap).process(visit).print()
env.execute("Sessions")
