"""The duration of a checkpoint, from CheckpointTriggered to CheckpointCompleted in the log, and its cost.

A keyed running count at 1,000 records a second, in four subtasks, with an interval of a second: the sum of barrier,
cut, commit, files, acknowledgements and metadata. The control plane's share is measured separately, with simulated
subtasks that acknowledge at once over a real log (see `_deployment`), and metadata that is really written. The cost of
checkpoints is measured in the vectorised word count over a backlog, with them and without, in turns.
"""

from __future__ import annotations

import itertools
import tempfile
from argparse import ArgumentParser
from collections.abc import Mapping

from _deployment import Deployment
from _heartbeats import Pulse
from _jobs import Cluster, running_cluster
from _lines import check, create_topic, load
from _processes import new_log
from _report import conditions, median, percentile, report
from _scale import scaled, scaled_s
from _simulated import SLOTS
from msgspec.structs import replace
from wordcount_throughput import vectorised

from tailrace import Formats, KafkaSink, KafkaSource, StreamExecutionEnvironment
from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas.job_master import CheckpointAborted, CheckpointCompleted, CheckpointTriggered
from tailrace.schemas.types import JobGraph
from tailrace.services.log import EventLog, Tail

INTERVAL = {"execution.checkpointing.interval": "1 s"}
RATE = 1_000
WARM_UP_S = scaled_s(20.0)
MEASURED_S = scaled_s(60.0, least=5.0)
CONTROL = (scaled(100, least=10), scaled(1_000, least=20))
CONTROL_CHECKPOINTS = scaled(15, least=3)
LINES = scaled(8_000_000)
WARM_UP_LINES = scaled(200_000)
ROUNDS = scaled(3)
PATIENCE_POLLS = 300


def counted(text: str) -> tuple[str, str, int]:
    key, sent = text.split(",")
    return key, sent, 1


def added(a: tuple[str, str, int], b: tuple[str, str, int]) -> tuple[str, str, int]:
    return b[0], b[1], a[2] + b[2]


def joined(count: tuple[str, str, int]) -> str:
    return f"{count[0]},{count[1]},{count[2]}"


def keyed(source: str, sink: str, parallelism: int) -> JobGraph:
    """Returns Kafka -> key_by -> running count -> Kafka: two vertices of so many subtasks."""
    env = StreamExecutionEnvironment(parallelism=parallelism)
    counts = env.from_source(KafkaSource(source)).map(counted).key_by(0).reduce(added)
    counts.map(joined).sink_to(KafkaSink(sink, Formats.text()))
    return configured(env.get_job_graph("running count"), INTERVAL)


def configured(graph: JobGraph, configuration: Mapping[str, str]) -> JobGraph:
    """Returns the graph with additional settings."""
    return replace(graph, configuration={**graph.configuration, **configuration})


class Checkpoints:
    """The durations of checkpoints in a log, from its present end on."""

    def __init__(self, log: EventLog) -> None:
        self._tail: Tail = log.tail(log.end())
        self._triggered: dict[tuple[str, int], int] = {}
        self.durations_ms: list[float] = []
        self.aborted = 0

    def read(self, seconds: float = 0.0) -> None:
        """Reads the events since the last call."""
        for record in self._tail.poll(seconds):
            match record.body:
                case CheckpointTriggered(job_id=job_id, checkpoint_id=number):
                    self._triggered[job_id, number] = record.header.time
                case CheckpointCompleted(job_id=job_id, checkpoint=checkpoint):
                    triggered = self._triggered.pop((job_id, checkpoint.checkpoint_id), None)
                    if triggered is not None:
                        self.durations_ms.append((record.header.time - triggered) / 1e3)
                case CheckpointAborted():
                    self.aborted += 1
                case _:
                    pass

    def read_all(self) -> list[float]:
        """Returns the durations of all complete checkpoints. Raises RuntimeError if there are none."""
        before = -1
        while before != len(self.durations_ms):
            before = len(self.durations_ms)
            self.read(1.0)
        if not self.durations_ms:
            raise RuntimeError(f"no checkpoint was completed, {self.aborted} were aborted")
        return self.durations_ms

    def wait(self, count: int) -> list[float]:
        """Returns the durations of the next so many checkpoints. Raises TimeoutError."""
        for _ in range(PATIENCE_POLLS):
            if len(self.durations_ms) >= count:
                return self.durations_ms
            self.read(0.2)
        raise TimeoutError(f"{len(self.durations_ms)} of {count} checkpoints were completed")


class Bench:
    """Collects figures."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.figures: dict[str, float] = {}

    def control(self, subtasks: int, cluster: str, checkpoints: int) -> None:
        """Measures the control plane alone."""
        log = new_log(self.servers, cluster)
        with (
            tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory,
            Deployment(self.servers, cluster, -(-subtasks // SLOTS)) as deployment,
        ):
            checkpoint_log = Checkpoints(log)
            configuration = {**INTERVAL, "state.checkpoints.dir": f"file://{directory}"}
            deployment.run(subtasks // 2, shared=False, configuration=configuration)
            # The first one is written by threads and a producer that begin with it.
            durations = checkpoint_log.wait(checkpoints + 1)[1:]
        log.close()
        self.figures[f"control_{subtasks}_p50_ms"] = median(durations)
        self.figures[f"control_{subtasks}_p99_ms"] = percentile(durations, 99)

    def real(self, cluster: Cluster, log: EventLog, seconds: float) -> None:
        """Measures four subtasks at a steady rate."""
        source, sink = (create_topic(self.servers, f"pulse-{end}", 2) for end in ("in", "out"))
        job = cluster.start(keyed(source, sink, 2)).wait_until_running()
        pulse = Pulse(self.servers, source, sink, 2)
        pulse.latencies_ms(RATE, WARM_UP_S)
        checkpoints = Checkpoints(log)
        latencies = pulse.latencies_ms(RATE, seconds)
        durations = checkpoints.read_all()
        job.cancel()
        self.figures["p50_ms"] = median(durations)
        self.figures["p99_ms"] = percentile(durations, 99)
        self.figures["checkpoints"] = len(durations)
        self.figures["aborted"] = checkpoints.aborted
        self.figures["record_p50_ms"] = median(latencies)
        self.figures["record_p99_ms"] = percentile(latencies, 99)

    def loss(self, cluster: Cluster, log: EventLog, lines: int, rounds: int) -> None:
        """Measures full load, with checkpoints and without, in turns; checks the counts."""
        rates: dict[bool, list[float]] = {True: [], False: []}
        durations: list[float] = []
        load(self.servers, "warm-up", WARM_UP_LINES)
        self._counted(cluster, "warm-up", "counts-warm-up", {})
        load(self.servers, "lines", lines)
        for number, checkpointed in itertools.product(range(rounds), (False, True)):
            sink = f"counts-{number}-{checkpointed}"
            checkpoints = Checkpoints(log)
            seconds = self._counted(cluster, "lines", sink, INTERVAL if checkpointed else {})
            check(self.servers, sink, lines)
            rates[checkpointed].append(lines / seconds)
            if checkpointed:
                durations += checkpoints.read_all()
        self.figures["lines_per_s"] = median(rates[True])
        self.figures["without_lines_per_s"] = median(rates[False])
        self.figures["throughput_loss"] = 1 - median(rates[True]) / median(rates[False])
        self.figures["full_load_p50_ms"] = median(durations)
        self.figures["full_load_p99_ms"] = percentile(durations, 99)

    def _counted(self, cluster: Cluster, source: str, sink: str, configuration: Mapping[str, str]) -> float:
        create_topic(self.servers, sink)
        graph = configured(vectorised(source, sink, 2), configuration)
        return cluster.start(graph).wait_until_running().wait().run_s


def main() -> None:
    parser = ArgumentParser("checkpoint")
    parser.add_argument("--lines", type=int, default=LINES, help="of the backlog")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="over the backlog, each with and without")
    parser.add_argument("--seconds", type=float, default=MEASURED_S, help="at 1,000 records a second")
    parser.add_argument("--checkpoints", type=int, default=CONTROL_CHECKPOINTS, help="of simulated subtasks")
    parser.add_argument("--without", nargs="*", default=[], help="what is left out: control, real, loss")
    options = parser.parse_args()
    under = conditions(
        interval_s=1, records_per_s=RATE, seconds=options.seconds, lines=options.lines, rounds=options.rounds
    )
    with EmbeddedKafka(heap="1g") as kafka:
        bench = Bench(kafka.bootstrap_servers)
        if "control" not in options.without:
            for subtasks in CONTROL:
                bench.control(subtasks, f"bench-{subtasks}", options.checkpoints)
        if not {"real", "loss"} <= set(options.without):
            with running_cluster(kafka.bootstrap_servers, slots=4) as cluster:
                log = new_log(kafka.bootstrap_servers, "bench")
                if "real" not in options.without:
                    bench.real(cluster, log, options.seconds)
                if "loss" not in options.without:
                    bench.loss(cluster, log, options.lines, options.rounds)
                log.close()
    notes = {
        "p50_ms": "4 subtasks at 1,000 records a second; Flink 2.3: 36",
        "control_100_p50_ms": "simulated subtasks; aim: below 50",
        "control_1000_p50_ms": "ten TaskExecutors of 100 slots",
        "record_p50_ms": "of the records, with checkpoints",
        "throughput_loss": "share of lines_per_s; aim: below 0.05",
        "full_load_p50_ms": "over a backlog; Flink 2.3: 98",
    }
    report("checkpoint", bench.figures, under, notes)


if __name__ == "__main__":
    main()
