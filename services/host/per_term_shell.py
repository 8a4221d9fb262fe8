"""A shell that is created again for each term of its role in the same process.

A process that steps down and is elected again must not continue with its old knowledge: another leader has changed the
state in between. A role with one instance therefore has a separate shell for each term. Closing a shell may take as
long as its running work; the host does not wait for it. Events of a closed shell are dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from ...infra import threads
from ..core.role import Emit, Instruction, OutgoingEvent


class TermShell(Protocol):
    """A shell for one term."""

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None: ...

    def close(self) -> None: ...


AwaitPreviousTerms = Callable[[], None]
"""Returns when the shells of earlier terms have ended."""
ShellFactory = Callable[[Emit, AwaitPreviousTerms], TermShell]


class PerTermShell:
    """A Shell. Calls `on_retire` on the host's thread when this process no longer leads the role."""

    def __init__(
        self, say: Emit, new_shell: ShellFactory, on_retire: Callable[[], None] = lambda: None
    ) -> None:
        self._say = say
        self._new_shell = new_shell
        self._on_retire = on_retire
        self._current: tuple[TermShell, threading.Event] | None = None
        self._ending: list[threading.Thread] = []

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        if self._current is None:
            over, before = threading.Event(), [thread for thread in self._ending if thread.is_alive()]
            self._ending = before

            def say(sender: str, owed: OutgoingEvent) -> None:
                if not over.is_set():
                    self._say(sender, owed)

            def settled() -> None:
                for thread in before:
                    thread.join()

            self._current = self._new_shell(say, settled), over
        self._current[0].perform(role_address, instructions, state)

    def retire(self, role_address: str) -> None:
        del role_address
        if self._current is None:
            return
        (shell, over), self._current = self._current, None
        over.set()
        self._on_retire()
        ending = threads.Thread(target=shell.close, name="end of a term")
        self._ending.append(ending)
        ending.start()

    def close(self) -> None:
        if self._current is not None:
            (shell, _), self._current = self._current, None
            shell.close()
        for thread in self._ending:
            thread.join()
