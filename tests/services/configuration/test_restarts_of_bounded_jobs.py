"""A job with only bounded sources fails at its first failure, unless the job or the cluster sets a restart strategy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tailrace import KafkaSource, StreamExecutionEnvironment
from tailrace.pipelines.graph.job_options import RESTART_STRATEGY
from tailrace.services.configuration.role_options import (
    ExponentialDelay,
    FixedDelay,
    NoRestart,
    job_configuration,
    restart_strategy,
)

Make = Callable[[StreamExecutionEnvironment], Any]
BOUNDED: dict[str, Make] = {
    "collection": lambda env: env.from_collection([1]),
    "generator": lambda env: env.generate(lambda n: n, count=3),
    "files": lambda env: env.read_text_file("/data"),
    "kafka": lambda env: env.from_source(KafkaSource("t", bounded=True)),
}
UNBOUNDED: dict[str, Make] = {
    "generator": lambda env: env.generate(lambda n: n),
    "socket": lambda env: env.socket_text_stream("localhost", 1),
    "kafka": lambda env: env.from_source(KafkaSource("t")),
}


def strategy_of(*sources: Make, cluster: dict[str, str] | None = None, **own: str) -> Any:
    env = StreamExecutionEnvironment()
    for make in sources:
        make(env).print()
    for key, value in own.items():
        env.configure(key.replace("__", ".").replace("_", "-"), value)
    return restart_strategy(job_configuration(cluster or {}, env.get_job_graph("job").configuration))


@pytest.mark.parametrize("name", BOUNDED)
def test_bounded_job_fails_by_default(name: str) -> None:
    assert isinstance(strategy_of(BOUNDED[name]), NoRestart)
    # The configuration of a cluster has all options, those that nobody has set with their defaults.
    defaults = {RESTART_STRATEGY.key: RESTART_STRATEGY.default.value}
    assert isinstance(strategy_of(BOUNDED[name], cluster=defaults), NoRestart)


@pytest.mark.parametrize("name", UNBOUNDED)
def test_job_with_unbounded_source_restarts(name: str) -> None:
    assert isinstance(strategy_of(UNBOUNDED[name]), ExponentialDelay)
    assert isinstance(strategy_of(BOUNDED["collection"], UNBOUNDED[name]), ExponentialDelay)


def test_restart_strategy_of_job_or_cluster_is_used() -> None:
    bounded = BOUNDED["collection"]
    assert isinstance(strategy_of(bounded, restart_strategy__type="fixed-delay"), FixedDelay)
    assert isinstance(strategy_of(bounded, restart_strategy__type="exponential-delay"), ExponentialDelay)
    cluster = {"restart-strategy.type": "fixed-delay"}
    assert isinstance(strategy_of(bounded, cluster=cluster), FixedDelay)
