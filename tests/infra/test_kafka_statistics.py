"""Statistics of Kafka clients: what a real client reports, and sums of clients that come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, Producer
from hypothesis import given
from hypothesis import strategies as st
from polling import wait_until

from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.infra.kafka_statistics import (
    INTERVAL_PROPERTY,
    ClientRole,
    ClientStatistics,
    StatisticsRegistry,
    parse_statistics,
)

ON = {INTERVAL_PROPERTY: "100"}
ROLE = ClientRole.LOG_READER
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def document(name: str, count: int, lag: int = 0) -> str:
    partitions = {
        "0": {"partition": 0, "fetchq_cnt": 2, "consumer_lag": lag},
        "-1": {"partition": -1, "fetchq_cnt": 9, "consumer_lag": 9},
    }
    found = {
        "name": name, "tx": count, "tx_bytes": 10 * count, "rx_bytes": 20 * count, "msg_cnt": 3,
        "brokers": {
            "a": {"txerrs": 1, "rxerrs": 2, "req_timeouts": 3, "rtt": {"avg": 500, "p99": 2_000},
                  "throttle": {"max": 7}},
            "b": {"rtt": {"avg": 700, "p99": 1_000}, "throttle": {"max": 0}},
        },
        "topics": {"t": {"partitions": partitions}},
    }  # fmt: skip
    return msgspec.json.encode(found).decode()


def reporter(registry: StatisticsRegistry) -> Callable[[str], None]:
    report: Callable[[str], None] = registry.settings(ON, ROLE)["stats_cb"]
    return report


def test_document_gives_sums_of_counters_and_largest_times() -> None:
    name, statistics = parse_statistics(document("x", 4, lag=5))
    assert name == "x"
    assert statistics == ClientStatistics(4, 40, 80, 6, 5, 700e-6, 2e-3, 7e-3, 5)


@pytest.mark.parametrize("text", ["{}", '{"brokers": {"a": {}}, "topics": {"t": {"partitions": {"0": {}}}}}'])
def test_document_without_figures_has_none(text: str) -> None:
    assert parse_statistics(text) == ("", ClientStatistics())


@pytest.mark.parametrize("create", [Producer, lambda settings: Consumer({**settings, "group.id": "g"})])
def test_real_client_reports(create: Callable[[dict[str, Any]], Any]) -> None:
    registry = StatisticsRegistry()
    client = create({**NOWHERE, **registry.settings(ON, ROLE)})

    def has_reported() -> bool:
        client.poll(0.05)
        return ROLE in registry.read()

    wait_until(has_reported, "a report")


@pytest.mark.parametrize("properties", [{}, {INTERVAL_PROPERTY: "0"}])
def test_statistics_are_off_by_default(properties: dict[str, str]) -> None:
    assert StatisticsRegistry().settings(properties, ROLE) == {}


def test_client_without_role_has_no_statistics_that_nobody_takes() -> None:
    assert KafkaConnection("localhost:9092", ON).to_librdkafka() == {"bootstrap.servers": "localhost:9092"}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("report"), st.sampled_from(["a", "b", "c"]), st.integers(0, 5)),
        st.tuples(st.just("wait"), st.just(""), st.integers(0, 10)),
        st.tuples(st.just("read"), st.just(""), st.just(0)),
    )
)


@given(STEPS)
def test_counters_are_the_sum_of_all_clients_and_never_fall(steps: list[tuple[str, str, int]]) -> None:
    now = 0.0
    registry = StatisticsRegistry(lambda: now)
    counts = dict.fromkeys("abc", 0)
    before = 0
    for kind, name, value in steps:
        if kind == "report":
            counts[name] += value
            reporter(registry)(document(name, counts[name]))
        elif kind == "wait":
            now += value
        else:
            found = registry.read().get(ROLE, ClientStatistics())
            assert found.requests == sum(counts.values()) >= before
            before = found.requests


def test_closed_client_has_no_queue_and_no_lag() -> None:
    now = 0.0
    registry = StatisticsRegistry(lambda: now)
    reporter(registry)(document("a", 4, lag=5))
    assert registry.read()[ROLE].lag == 5
    now = 60.0
    reporter(registry)(document("b", 1, lag=2))
    assert (registry.read()[ROLE].lag, registry.read()[ROLE].requests) == (2, 5)


def test_registry_stays_small_over_many_clients() -> None:
    now = 0.0
    registry = StatisticsRegistry(lambda: now)
    for number in range(1_000):
        reporter(registry)(document(f"client-{number}", 1))
        now += 60
        registry.read()
    assert registry.read()[ROLE].requests == 1_000
    assert registry.remembered < 300


def test_idle_client_is_served_without_polls_of_its_own() -> None:
    class Idle:
        served = 0

        def serve_statistics(self) -> None:
            Idle.served += 1

    registry, client = StatisticsRegistry(), Idle()
    registry.serve(client)
    wait_until(lambda: Idle.served > 1, "a second call")
    assert client.served > 1
