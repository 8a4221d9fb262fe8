"""A client that finds no broker says so in a line of logging, and not on stderr, again and again."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaException, Producer

from tailrace.infra import librdkafka_log
from tailrace.infra.librdkafka_log import LOGGER, RateLimit


def record(kind: str) -> logging.LogRecord:
    return logging.LogRecord(
        "l", logging.ERROR, "f", 1, "%s [%s] %s", (kind, "producer-1", "no broker"), None
    )


def test_a_line_of_a_kind_comes_once_an_interval_and_counts_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now

    monkeypatch.setattr(librdkafka_log, "time", Clock)
    limit = RateLimit(30.0)
    passed = []
    for second in range(61):
        now = float(second)
        for kind in ("FAIL", "FAIL", "REQTMOUT"):
            if limit.filter(each := record(kind)):
                passed.append((second, each.getMessage()))
    assert [(at, line.split()[0]) for at, line in passed] == [
        (0, "FAIL"),
        (0, "REQTMOUT"),
        (30, "FAIL"),
        (30, "REQTMOUT"),
        (60, "FAIL"),
        (60, "REQTMOUT"),
    ]
    assert passed[2][1].endswith("(59 more were left out since the last one)")
    assert passed[0][1].endswith("no broker")


def test_a_client_says_it_there_and_not_on_stderr(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOGGER, "filters", [RateLimit()])
    producer = Producer(
        {
            "bootstrap.servers": "127.0.0.1:1",
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 20,
            "logger": LOGGER,
        }
    )
    with pytest.raises(KafkaException):
        producer.list_topics("none", 1.0)
    producer.poll(0)
    assert [each.name for each in caplog.records if "FAIL" in each.getMessage()] == ["tailrace.librdkafka"]
    assert "FAIL" not in capfd.readouterr().err
