"""What a running job occupies on the broker's disk: bounded by what is in flight, however long the job runs.

A generated stream of records of 200 bytes, shuffled, counted by key, with a checkpoint every 20 s. Tasks delete
channels below what was committed a minute ago, and changelogs below the last checkpoint. Kafka frees whole segments
when it looks, every half minute with the embedded one. Segments of 4 MiB let a short run show the bound; a cluster has
`--segment-mib 64`. Beside it: what would be on the disk if nothing were deleted, the sum of all segments that were ever
seen. The run has six parts of equal length, and the most of each is a point of the curve. `--seconds 3600` runs for an
hour.
"""

from __future__ import annotations

import os
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

from _jobs import running_cluster
from _report import conditions, report
from _scale import scaled_s

from tailrace import StreamExecutionEnvironment
from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas.types import JobGraph

SECONDS = scaled_s(180.0, least=3.0)
RATE = 5_000
KEYS = 1_000
PAYLOAD_BYTES = 90
LOOK_S = 0.5
MIB = 1 << 20
PARTS = 6
KINDS = ("channels", "changelogs", "others")
"""Others: the event log, Kafka's own topics."""


def counting(parallelism: int, rate: int) -> JobGraph:
    """Returns generator -> key_by -> running count, which is discarded."""
    env = StreamExecutionEnvironment(parallelism=parallelism).configure("execution.isolation", "vertex")
    records = env.generate(
        lambda index: (f"k{index % KEYS}", 1, os.urandom(PAYLOAD_BYTES).hex()), rate_per_second=rate
    )
    counts = records.key_by(lambda record: record[0], str).reduce(lambda a, b: (a[0], a[1] + b[1], b[2]))
    counts.filter(lambda record: False).print()
    return env.get_job_graph("channel_disk")


class Disk:
    """Adds up the segments of all topics, by kind."""

    def __init__(self, data: Path, job_id: str) -> None:
        self._data = data
        self._prefix = f"bench.job.{job_id}."
        self._written: dict[Path, int] = {}
        self.most = [dict.fromkeys(KINDS, 0) for _ in range(PARTS)]
        """The most bytes at a time, of each kind, in each part of the run."""

    def look(self, part: int) -> dict[str, int]:
        """Returns the bytes of each kind, and takes them into a part of the run."""
        now = dict.fromkeys(KINDS, 0)
        for path, size in self._segments():
            self._written[path] = max(size, self._written.get(path, 0))
            now[self._kind_of(path)] += size
        most = self.most[min(part, PARTS - 1)]
        for kind, size in now.items():
            most[kind] = max(size, most[kind])
        return now

    def written(self) -> dict[str, int]:
        """Returns the bytes that were ever seen."""
        found = dict.fromkeys(KINDS, 0)
        for path, size in self._written.items():
            found[self._kind_of(path)] += size
        return found

    def _segments(self) -> Iterator[tuple[Path, int]]:
        for directory in self._data.glob("*-[0-9]*"):
            for path in directory.glob("*.log*"):
                try:
                    # A segment that is being deleted has a new name.
                    yield path.with_suffix("") if path.suffix == ".deleted" else path, path.stat().st_size
                except FileNotFoundError:
                    continue

    def _kind_of(self, path: Path) -> str:
        topic = path.parent.name.rpartition("-")[0]
        if not topic.startswith(self._prefix):
            return "others"
        return "changelogs" if topic.endswith(".changelog") else "channels"


def main() -> None:
    parser = ArgumentParser("channel_disk")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--rate", type=int, default=RATE, help="records a second")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--segment-mib", type=int, default=4, help="segment.bytes of the job's topics")
    parser.add_argument("--checkpoint-interval", default="20 s")
    options = parser.parse_args()
    settings = {
        "topics.config": f"segment.bytes={options.segment_mib * MIB}",
        "execution.checkpointing.interval": options.checkpoint_interval,
    }
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        kafka = EmbeddedKafka(Path(directory), heap="1g")
        try:
            servers = kafka.start().bootstrap_servers
            with running_cluster(servers, slots=options.parallelism, configuration=settings) as cluster:
                job = cluster.start(counting(options.parallelism, options.rate)).wait_until_running()
                disk = Disk(Path(directory) / "data", job.job_id)
                start = time.monotonic()
                last = disk.look(0)
                while (passed := time.monotonic() - start) < options.seconds:
                    last = disk.look(int(PARTS * passed / options.seconds))
                    time.sleep(LOOK_S)
                job.cancel()
        finally:
            kafka.kill()
    written = disk.written()
    figures: dict[str, float] = {}
    for kind in KINDS:
        parts = [most[kind] / MIB for most in disk.most]
        figures[f"{kind}_last_mib"] = last[kind] / MIB
        figures[f"{kind}_most_mib"] = max(parts)
        figures[f"{kind}_written_mib"] = written[kind] / MIB
        figures |= {f"{kind}_most_in_part_{part}_mib": most for part, most in enumerate(parts, 1)}
    report(
        "channel_disk",
        figures,
        conditions(
            seconds=options.seconds,
            records_per_s=options.rate,
            parallelism=options.parallelism,
            segment_mib=options.segment_mib,
            checkpoint_interval=options.checkpoint_interval,
        ),
        {
            "channels_most_in_part_6_mib": "aim: not above part 2 by more than a segment for each partition",
            "channels_written_mib": "what would be there if nothing were deleted",
            "changelogs_written_mib": "what would be there if nothing were deleted",
        },
    )


if __name__ == "__main__":
    main()
