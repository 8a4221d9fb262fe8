"""A few requests at a time, a few that wait, and 503 for the others."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from polling import wait_until

from tailrace.services.rest.errors import Unavailable
from tailrace.services.rest.turns import Turns


def test_requests_have_turns_wait_or_are_refused() -> None:
    turns = Turns("read", at_once=2, waiting=1)
    release, most = threading.Event(), []
    begun: set[int] = set()

    def read(number: int) -> None:
        with turns.take():
            begun.add(number)
            most.append(len(begun))
            release.wait(20)
            begun.remove(number)

    with ThreadPoolExecutor(4) as pool:
        requests = [pool.submit(read, number) for number in range(4)]
        wait_until(lambda: len(begun) == 2 and any(each.done() for each in requests))
        (refused,) = [each.exception() for each in requests if each.done()]
        release.set()
        assert [each.exception() for each in requests].count(None) == 3
    assert isinstance(refused, Unavailable)
    assert (refused.message, max(most)) == ("Too many requests read: try again.", 2)
    assert refused.headers["Retry-After"]
    with turns.take():
        pass


def test_request_that_waits_too_long_has_reason() -> None:
    turns = Turns("read", at_once=1, waiting=1, timeout_s=0.01, describe_delay=lambda: "It is at offset 7.")
    with turns.take(), pytest.raises(Unavailable, match="at offset 7"), turns.take():
        pass
