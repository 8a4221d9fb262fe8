"""A shell for each term: what an earlier one has begun says nothing any more, and nobody waits for its end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest
from polling import TIMEOUT_S

from tailrace.schemas.client import JobAccepted
from tailrace.services.core.role import Emit, Instruction, OutgoingEvent
from tailrace.services.host.per_term_shell import PerTermShell, TermShell

OWED = OutgoingEvent("client", JobAccepted(job_id="j", name="j"), None)


class Slow:
    """A shell that does not end before it may."""

    def __init__(self, say: Emit, settled: Callable[[], None]) -> None:
        self.say, self.settled = say, settled
        self.obeyed: list[object] = []
        self.may_end = threading.Event()
        self.ended = threading.Event()

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        self.obeyed.append(state)

    def close(self) -> None:
        assert self.may_end.wait(TIMEOUT_S)
        self.ended.set()


@pytest.fixture
def shells() -> Iterator[list[Slow]]:
    made: list[Slow] = []
    yield made
    for each in made:
        each.may_end.set()


@pytest.fixture
def said() -> list[OutgoingEvent]:
    return []


@pytest.fixture
def afresh(shells: list[Slow], said: list[OutgoingEvent]) -> Iterator[PerTermShell]:
    def new(say: Emit, settled: Callable[[], None]) -> TermShell:
        shells.append(Slow(say, settled))
        return shells[-1]

    shell = PerTermShell(lambda _, owed: said.append(owed), new, lambda: said.append(OWED))
    yield shell
    for each in shells:
        each.may_end.set()
    shell.close()
    assert all(each.ended.is_set() for each in shells)


def test_nothing_is_begun_before_there_is_something_to_obey(afresh: PerTermShell, shells: list[Slow]) -> None:
    afresh.retire("dispatcher")
    assert shells == []
    afresh.perform("dispatcher", [], 1)
    afresh.perform("dispatcher", [], 2)
    assert [each.obeyed for each in shells] == [[1, 2]]


def test_a_new_term_has_a_new_shell_at_once_and_the_old_one_says_nothing(
    afresh: PerTermShell, shells: list[Slow], said: list[OutgoingEvent]
) -> None:
    afresh.perform("dispatcher", [], 1)
    shells[0].say("dispatcher", OWED)
    assert len(said) == 1
    afresh.retire("dispatcher")
    # Whoever follows the role is told, once.
    assert len(said) == 2
    afresh.retire("dispatcher")
    shells[0].say("dispatcher", OWED)
    assert len(said) == 2
    afresh.perform("dispatcher", [], 2)
    assert [each.obeyed for each in shells] == [[1], [2]]
    assert not shells[0].ended.is_set()
    shells[1].say("dispatcher", OWED)
    assert len(said) == 3


def test_a_shell_can_wait_for_the_end_of_those_before_it(afresh: PerTermShell, shells: list[Slow]) -> None:
    afresh.perform("dispatcher", [], 1)
    afresh.retire("dispatcher")
    afresh.perform("dispatcher", [], 2)
    settled = threading.Event()
    waiting = threading.Thread(target=lambda: (shells[1].settled(), settled.set()))
    waiting.start()
    assert not settled.wait(0.05)
    shells[0].may_end.set()
    assert settled.wait(TIMEOUT_S)
    waiting.join()
