"""The demo's own count: exact, or it says what is wrong."""

from __future__ import annotations

import socket
from collections import Counter

from tailrace.services.cli.demo import TextServer, Window, WindowCounts
from tailrace.services.cli.demo.window_counts import check_counts
from tailrace.services.client import OutputRecord

SENT = [("to", "be"), ("or", "not"), ("to", "be"), ("that",)]


def window(end_ms: int, **counts: int) -> Window:
    return Window(end_ms, Counter(counts))


def printed(word: str, count: int, end_ms: int, subtask: int = 1) -> OutputRecord:
    return OutputRecord(0, end_ms - 1, subtask, None, f"{word} : {count}", {"word": word, "count": count})


def test_counts_are_right_however_the_windows_cut_the_lines() -> None:
    verdict = check_counts(
        [window(5000, to=2, that=1, be=1), window(10000, be=1, **{"or": 1, "not": 1})],
        SENT,
    )
    assert verdict.right
    assert "7 words counted: exactly those of the 4 lines" in verdict.text


def test_a_lost_word_is_seen() -> None:
    verdict = check_counts([window(5000, to=2, be=1, that=1, **{"or": 1, "not": 1})], SENT)
    assert not verdict.right
    assert "too few of 'be' (1)" in verdict.text


def test_a_doubled_word_is_seen() -> None:
    verdict = check_counts([window(5000, to=3, be=2, that=1, **{"or": 1, "not": 1})], SENT)
    assert not verdict.right
    assert "too many of 'to' (1)" in verdict.text


def test_nothing_counted_is_not_right() -> None:
    assert not check_counts([], SENT).right


def test_a_window_closes_when_another_follows_or_all_is_quiet() -> None:
    tally = WindowCounts()
    tally.add(printed("to", 2, 5000), 5.1)
    assert tally.closed_windows(5.2) == []
    tally.add(printed("be", 1, 5000), 5.2)
    (first,) = tally.closed_windows(6.5)
    assert (first.end_ms, first.total) == (5000, 3)
    assert tally.closed_windows(7.0) == []
    tally.add(printed("or", 1, 10000), 10.1)
    tally.add(printed("not", 1, 15000), 15.1)
    assert [each.end_ms for each in tally.closed_windows(15.1)] == [10000]


def test_a_window_is_complete_when_every_subtask_has_gone_past_it() -> None:
    tally = WindowCounts()
    tally.add(printed("to", 2, 5000, 1), 0)
    tally.add(printed("to", 1, 10000, 1), 0)
    assert tally.complete(2) == []
    tally.add(printed("be", 2, 5000, 2), 0)
    assert tally.complete(2) == tally.closed_windows(0) == []
    tally.add(printed("be", 2, 10000, 2), 0)
    (first,) = tally.complete(2)
    assert (first.end_ms, first.total) == (5000, 4)


def test_the_server_notes_what_it_sends_and_sends_nothing_while_it_is_paused() -> None:
    server = TextServer(words_per_s=50_000)
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
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
