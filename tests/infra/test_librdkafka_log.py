"""A client that finds no broker logs this once per interval, and prints nothing on stderr."""

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


def test_log_filter_passes_one_line_per_interval_and_counts_the_rest(
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
            if limit.filter(log_record := record(kind)):
                passed.append((second, log_record.getMessage()))
    assert [(at, line.split()[0]) for at, line in passed] == [
        (0, "FAIL"),
        (0, "REQTMOUT"),
        (30, "FAIL"),
        (30, "REQTMOUT"),
        (60, "FAIL"),
        (60, "REQTMOUT"),
    ]
    assert passed[2][1].endswith("(59 more were suppressed since the last one)")
    assert passed[0][1].endswith("no broker")


def test_client_logs_lost_broker_and_prints_nothing(
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
    assert [record.name for record in caplog.records if "FAIL" in record.getMessage()] == [
        "tailrace.librdkafka"
    ]
    assert "FAIL" not in capfd.readouterr().err
