"""The demo's own count: exact, or it says what is wrong."""

from __future__ import annotations

import socket
from collections import Counter

from tailrace.services.cli.demo.text_server import TextServer
from tailrace.services.cli.demo.word_check import check_counts

SENT = [("to", "be"), ("or", "not"), ("to", "be"), ("that",)]


def test_counts_are_right_if_each_word_is_counted_as_often_as_it_was_sent() -> None:
    counted = Counter({"to": 2, "that": 1, "be": 2, "or": 1, "not": 1})
    assert check_counts(counted, SENT) == (
        True,
        "7 words counted: exactly those of the 4 lines sent, each as often as it was sent",
    )


def test_lost_word_is_detected() -> None:
    is_right, line = check_counts(Counter({"to": 2, "that": 1, "be": 1, "or": 1, "not": 1}), SENT)
    assert not is_right
    assert "too few of 'be' (1)" in line


def test_duplicate_word_is_detected() -> None:
    is_right, line = check_counts(Counter({"to": 3, "that": 1, "be": 2, "or": 1, "not": 1}), SENT)
    assert not is_right
    assert "too many of 'to' (1)" in line


def test_nothing_counted_is_not_right() -> None:
    assert check_counts(Counter(), []) == (False, "nothing was counted")


def test_server_records_what_it_sends_and_pauses() -> None:
    server = TextServer(words_per_s=50_000)
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=90) as client:
            received = b""

            def receive(lines: int) -> None:
                nonlocal received
                while received.count(b"\n") < lines:
                    received += client.recv(65536)

            receive(100)
            with server.paused():
                sent = server.sent_words()
                receive(len(sent))
                assert [tuple(line.decode().split()) for line in received.splitlines()] == sent
                assert server.sent_words() == sent
            receive(len(sent) + 1)
    finally:
        server.close()
