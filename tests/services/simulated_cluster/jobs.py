"""Jobs of every shape that matters to scheduling."""

from __future__ import annotations

import random
from collections.abc import Mapping

from msgspec.structs import replace

from tailrace.pipelines.graph.job_options import (
    BOUNDED,
    ISOLATION,
    RUNTIME_MODE,
    SLOW_TASK_LOWER_BOUND,
    SLOW_TASK_RATIO,
    SPECULATIVE,
    Isolation,
)
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.schemas.types import JobGraph, Partitioner

from ...graphs import edge, job_graph, operator, source, vertex
from .cluster import PROFILE, graph

STRATEGIES: tuple[Mapping[str, str], ...] = (
    {"restart-strategy.type": "none"},
    {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "2",
        "restart-strategy.fixed-delay.delay": "1 s",
    },
    {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "100",
        "restart-strategy.fixed-delay.delay": "0 s",
    },
    {
        "restart-strategy.type": "failure-rate",
        "restart-strategy.failure-rate.max-failures-per-interval": "2",
        "restart-strategy.failure-rate.failure-rate-interval": "1 min",
        "restart-strategy.failure-rate.delay": "1 s",
    },
    {},
)
"""The last is the default, exponential-delay."""


def shared_slots(parallelism: int) -> JobGraph:
    """Returns a graph of two vertices of different parallelism in one sharing group."""
    return job_graph(source(), vertex("sink", parallelism=parallelism), edge("source", "sink"))


def in_groups(parallelism: int) -> JobGraph:
    """Returns a graph with two sharing groups: it needs the sum of the maxima of both."""
    return job_graph(
        source(),
        vertex("sink", parallelism=parallelism, slot_sharing_group="other"),
        edge("source", "sink"),
    )


def in_single_slots(parallelism: int) -> JobGraph:
    """Returns a graph that needs a slot for each subtask of the sink."""
    return job_graph(
        source(), vertex("sink", parallelism=parallelism, slot_sharing_group=""), edge("source", "sink")
    )


def co_located(parallelism: int) -> JobGraph:
    """Returns a graph with middle and sink co-located by subtask; the source shares the slot of the first ones."""
    return job_graph(
        source(),
        vertex("middle", parallelism=parallelism, co_location_group="together"),
        vertex("sink", parallelism=parallelism, co_location_group="together"),
        edge("source", "middle"),
        edge("middle", "sink"),
    )


def with_profile(parallelism: int, cpu_cores: float = 1.0) -> JobGraph:
    """Returns a graph whose sink needs a slot with a resource profile."""
    profile = replace(PROFILE, cpu_cores=cpu_cores)
    return job_graph(
        source(),
        vertex("sink", parallelism=parallelism, slot_sharing_group="large", resource_profile=profile),
        edge("source", "sink"),
    )


def in_a_line(parallelism: int) -> JobGraph:
    """Returns a graph of three vertices in one line."""
    return job_graph(
        source(),
        vertex("middle", parallelism=parallelism),
        vertex("sink", parallelism=parallelism),
        edge("source", "middle", Partitioner.REBALANCE),
        edge("middle", "sink", Partitioner.REBALANCE),
    )


def in_one_chain() -> JobGraph:
    """Returns the same line as one vertex, which is divided when it gets a higher parallelism."""
    operators = (
        operator("source", OperatorKind.KAFKA_SOURCE),
        operator("middle"),
        operator("sink"),
    )
    return job_graph(
        vertex("source", *operators),
        chained_edges=(
            edge("source", "middle", source_operator_id="source"),
            edge("middle", "sink", source_operator_id="middle"),
        ),
    )


def with_options(job: JobGraph, configuration: Mapping[str, str]) -> JobGraph:
    """Returns the graph with its own configuration."""
    return replace(job, configuration={**job.configuration, **configuration})


def any_checkpointing(draw: random.Random) -> dict[str, str]:
    """Draws the configuration of a job's checkpoints."""
    key, settings = "execution.checkpointing", dict[str, str]()
    if draw.random() < 0.7:
        settings[f"{key}.interval"] = draw.choice(("100 ms", "1 s", "10 s"))
    if draw.random() < 0.3:
        settings[f"{key}.timeout"] = draw.choice(("1 s", "30 s"))
    if draw.random() < 0.3:
        settings[f"{key}.min-pause"] = draw.choice(("100 ms", "5 s"))
    if draw.random() < 0.3:
        settings[f"{key}.max-concurrent-checkpoints"] = str(draw.randint(2, 4))
    if draw.random() < 0.3:
        settings[f"{key}.tolerable-failed-checkpoints"] = str(draw.randint(0, 2))
    if draw.random() < 0.5:
        retention = draw.choice(("RETAIN_ON_CANCELLATION", "DELETE_ON_CANCELLATION"))
        settings[f"{key}.externalized-checkpoint-retention"] = retention
    if draw.random() < 0.5:
        settings["state.checkpoints.num-retained"] = str(draw.randint(1, 3))
    return settings


def _any_isolation(job: JobGraph, configuration: Mapping[str, str]) -> dict[str, str]:
    """Returns an isolation, or BATCH mode, that depends on the job: drawing one would change what seeds mean."""
    draw = random.Random(
        f"{len(job.vertices)} {job.vertices[-1].parallelism} {sorted(configuration.items())}"
    )
    isolation = draw.choice((Isolation.SLOT, Isolation.SLOT, Isolation.VERTEX))
    found = {ISOLATION.key: isolation.value}
    if draw.random() < 0.2:
        found |= {RUNTIME_MODE.key: "BATCH", BOUNDED.key: "true"}
        if draw.random() < 0.5:
            found |= {SPECULATIVE.key: "true", SLOW_TASK_LOWER_BOUND.key: "2 s", SLOW_TASK_RATIO.key: "0.3"}
    return found


def any_job(draw: random.Random) -> JobGraph:
    """Draws one of these graphs, with parallelism 1 to 3."""
    parallelism = draw.randint(1, 3)
    shape = draw.choice(
        (graph, graph, shared_slots, in_groups, in_single_slots, co_located, with_profile, in_a_line)
    )
    job = (
        with_profile(parallelism, draw.choice((1.0, 1.0, 2.0, 64.0)))
        if shape is with_profile
        else shape(parallelism)
    )
    configuration = dict(draw.choice(STRATEGIES))
    if draw.random() < 0.25:
        configuration["execution.schedule-mode"] = "LAZY_FROM_SOURCES"
    if draw.random() < 0.5:
        configuration.update(any_checkpointing(draw))
    drawn = _any_isolation(job, configuration)
    if shape is in_a_line and parallelism == 1 and drawn[ISOLATION.key] == Isolation.SLOT.value:
        job = in_one_chain()
    configuration |= drawn
    return with_options(job, configuration)
