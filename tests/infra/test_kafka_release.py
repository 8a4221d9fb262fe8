"""A broker's answer to ApiVersions tells the line of its release. The answers in `api_versions` are those of brokers of
these releases."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.infra.kafka_release import FAULTY, decode_supported_level, encode_request, read_supported_level
from tailrace.services.log.kafka_release import find_faulty_brokers

ANSWERS = {path.stem: path.read_bytes() for path in (Path(__file__).parent / "api_versions").glob("*.bin")}
NAMED = ANSWERS["4.4.0"]


@pytest.mark.parametrize(("release", "level"), [("4.2.1", 29), ("4.3.0", 30), ("4.3.1", 30), ("4.4.0", 33)])
def test_answer_has_level_of_release(release: str, level: int) -> None:
    assert decode_supported_level(ANSWERS[release]) == level
    assert (level in FAULTY) == (release != "4.2.1")


@given(st.integers(0, len(NAMED) - 1) | st.binary(max_size=200))
def test_other_bytes_are_no_level_or_refused(cut: int | bytes) -> None:
    content = NAMED[:cut] if isinstance(cut, int) else cut
    try:
        level = decode_supported_level(content)
    except ValueError:
        return
    assert level is None or isinstance(level, int)


@pytest.mark.parametrize("release", sorted(ANSWERS))
def test_faulty_broker_is_named(release: str) -> None:
    answer = ANSWERS[release]
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        serving = threading.Thread(target=answer_once, args=(server, answer))
        serving.start()
        found = list(find_faulty_brokers(KafkaConnection(address)))
        serving.join()
    fault = f"Kafka at {address} is 4.3 or 4.4, which may lose the end of a transaction"
    assert found == [(address, None if release == "4.2.1" else fault)]


def answer_once(server: socket.socket, answer: bytes) -> None:
    link, _ = server.accept()
    with link:
        assert link.recv(1000) == encode_request()
        link.sendall(len(answer).to_bytes(4, "big") + answer)


def test_silent_broker_has_no_fault() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with capture_logs() as lines:
        assert list(find_faulty_brokers(KafkaConnection(address))) == []
    assert [line["log_level"] for line in lines] == ["debug"]


@pytest.mark.integration
def test_embedded_kafka_tells_its_level() -> None:
    with EmbeddedKafka() as kafka:
        servers = kafka.bootstrap_servers
        assert read_supported_level(KafkaConnection(servers), servers) == 29
        assert list(find_faulty_brokers(KafkaConnection(servers))) == [(servers, None)]
