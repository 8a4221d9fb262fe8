"""From SubmitJob to 2 x 10,000 all-to-all-connected subtasks RUNNING, on 200 TaskExecutors of 100 slots each.

See `_deployment`: roles, hosts and log are real; tasks and channels are not. The source that the graph needs runs as
one more subtask, in a slot of the first vertex. The raw limit is the cost of the same events without roles: produced by
one process, read and decoded by two, as in the deployment (see `_raw_log`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from _deployment import Deployment
from _raw_log import raw_s
from _report import conditions, median, report
from _scale import scaled
from _simulated import SLOTS

from tailrace.infra.kafka import EmbeddedKafka

ROUNDS = scaled(3)
SUBTASKS = {"200": scaled(200, least=4), "1k": scaled(1_000, least=20), "20k": scaled(20_000)}
READERS = 2


def deployed(bootstrap_servers: str, cluster: str, subtasks: int, *, shared: bool) -> dict[str, Any]:
    """Returns the figures of `Deployment.run` for a job of so many subtasks, on as many TaskExecutors as its slots
    need."""
    slots = subtasks // 2 if shared else subtasks
    with Deployment(bootstrap_servers, cluster, -(-slots // SLOTS)) as deployment:
        return deployment.run(subtasks // 2, shared=shared)


def middle(rounds: Sequence[dict[str, Any]], key: str) -> float:
    """Returns the median of a figure."""
    return median([row[key] for row in rounds])


def main() -> None:
    numbers = itertools.count()
    with EmbeddedKafka() as kafka:
        servers = kafka.bootstrap_servers

        def rounds(subtasks: int, *, shared: bool = False) -> list[dict[str, Any]]:
            return [
                deployed(servers, f"bench-{next(numbers)}", subtasks, shared=shared) for _ in range(ROUNDS)
            ]

        runs = {name: rounds(subtasks) for name, subtasks in SUBTASKS.items()}
        raw, events = zip(
            *(raw_s(servers, f"bench-{next(numbers) - 1 - index}", READERS) for index in range(ROUNDS)),
            strict=True,
        )
        shared = rounds(SUBTASKS["20k"], shared=True)
    big = runs["20k"]
    running = middle(big, "running_s")
    figures = {
        "running_s": running,
        "raw_s": median(raw),
        "times_raw": running / median(raw),
        "shared_running_s": middle(shared, "running_s"),
        "running_200_s": middle(runs["200"], "running_s"),
        **{
            f"per_task_ms_{name}": middle(runs[name], "running_s") * 1e3 / SUBTASKS[name]
            for name in ("1k", "20k")
        },
        **{
            f"cpu_per_task_ms_{name}": (
                middle(runs[name], "master_cpu_s") + middle(runs[name], "workers_cpu_s")
            )
            * 1e3
            / SUBTASKS[name]
            for name in ("1k", "20k")
        },
        "events_per_task": middle(big, "events") / SUBTASKS["20k"],
        "master_cpu_s": middle(big, "master_cpu_s"),
        "workers_cpu_s": middle(big, "workers_cpu_s"),
        "master_mib": middle(big, "master_mib"),
    }
    notes = {
        "running_s": "SubmitJob -> all RUNNING, 20,000 slots; aim: below 15; Flink 1.14, published: 30",
        "raw_s": "raw limit: the same messages produced, and decoded by two readers",
        "shared_running_s": "the same in one slot sharing group: 10,000 slots",
        "running_200_s": "200 subtasks on two TaskExecutors; Flink 2.3: 2.4 with real tasks",
        "per_task_ms_20k": "aim: not above per_task_ms_1k",
        "cpu_per_task_ms_20k": "of both processes: says the same on a machine that has other work",
        "master_mib": "resident, with 20,000 tasks; Flink 1.14, published: 2,048",
        "master_cpu_s": "of the process of Dispatcher, ResourceManager and JobMaster",
        "workers_cpu_s": "of the process of all TaskExecutors",
    }
    report("deploy_20k", figures, conditions(events=median(events), rounds=ROUNDS, brokers=1), notes)


if __name__ == "__main__":
    main()
