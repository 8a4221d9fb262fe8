"""A leader that ends hands over at once, also while its loop hangs."""

from __future__ import annotations

import threading

from polling import TIMEOUT_S, wait_until

from tailrace.services.processes.process_lifecycle import hand_over_on_stop

from ..scripted_election import ScriptedElection


class ClosingElection(ScriptedElection):
    """An election that reports when it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()


def is_watched() -> bool:
    return any(thread.name == "hand-over" for thread in threading.enumerate())


def test_lead_is_returned_while_loop_hangs() -> None:
    stop, loop_ended, election = threading.Event(), threading.Event(), ClosingElection()
    hand_over_on_stop(stop, loop_ended, election)
    assert is_watched()
    assert not election.closed.is_set()
    stop.set()
    assert election.closed.wait(TIMEOUT_S)
    assert not loop_ended.is_set()
    loop_ended.set()
    wait_until(lambda: not is_watched())


def test_process_whose_loop_ends_appends_its_last_events_before_it_returns_lead() -> None:
    stop, loop_ended, election = threading.Event(), threading.Event(), ClosingElection()
    hand_over_on_stop(stop, loop_ended, election)
    loop_ended.set()
    stop.set()
    wait_until(lambda: not is_watched())
    assert not election.closed.is_set()
