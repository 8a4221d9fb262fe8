"""Each term has its own shell: events of earlier terms are dropped, and no term waits for the end of another."""

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
    """A shell that ends only when the test lets it."""

    def __init__(self, say: Emit, settled: Callable[[], None]) -> None:
        self.emit, self.settled = say, settled
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
    for item in made:
        item.may_end.set()


@pytest.fixture
def sent() -> list[OutgoingEvent]:
    return []


@pytest.fixture
def per_term_shell(shells: list[Slow], sent: list[OutgoingEvent]) -> Iterator[PerTermShell]:
    def new(say: Emit, settled: Callable[[], None]) -> TermShell:
        shells.append(Slow(say, settled))
        return shells[-1]

    shell = PerTermShell(lambda _, owed: sent.append(owed), new, lambda: sent.append(OWED))
    yield shell
    for item in shells:
        item.may_end.set()
    shell.close()
    assert all(shell.ended.is_set() for shell in shells)


def test_shell_is_created_with_first_instruction(per_term_shell: PerTermShell, shells: list[Slow]) -> None:
    per_term_shell.retire("dispatcher")
    assert shells == []
    per_term_shell.perform("dispatcher", [], 1)
    per_term_shell.perform("dispatcher", [], 2)
    assert [shell.obeyed for shell in shells] == [[1, 2]]


def test_new_term_has_new_shell_at_once_and_events_of_old_one_are_dropped(
    per_term_shell: PerTermShell, shells: list[Slow], sent: list[OutgoingEvent]
) -> None:
    per_term_shell.perform("dispatcher", [], 1)
    shells[0].emit("dispatcher", OWED)
    assert len(sent) == 1
    per_term_shell.retire("dispatcher")
    # Whoever follows the role is told, once.
    assert len(sent) == 2
    per_term_shell.retire("dispatcher")
    shells[0].emit("dispatcher", OWED)
    assert len(sent) == 2
    per_term_shell.perform("dispatcher", [], 2)
    assert [shell.obeyed for shell in shells] == [[1], [2]]
    assert not shells[0].ended.is_set()
    shells[1].emit("dispatcher", OWED)
    assert len(sent) == 3


def test_shell_can_wait_for_end_of_earlier_shells(per_term_shell: PerTermShell, shells: list[Slow]) -> None:
    per_term_shell.perform("dispatcher", [], 1)
    per_term_shell.retire("dispatcher")
    per_term_shell.perform("dispatcher", [], 2)
    settled = threading.Event()
    waiting = threading.Thread(target=lambda: (shells[1].settled(), settled.set()))
    waiting.start()
    assert not settled.wait(0.05)
    shells[0].may_end.set()
    assert settled.wait(TIMEOUT_S)
    waiting.join()
