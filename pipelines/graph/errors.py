"""Errors of a program or a graph, in one line for the person who wrote it."""

from __future__ import annotations

from collections.abc import Sequence

from ...infra.redaction import redacted


class ProgramError(Exception):
    """A program cannot run: what is wrong, in which operator, and in which line.

    `str()` is one line; `location` is file:line of the user's program, if known.
    """

    def __init__(self, reason: str, *, operator: str | None = None, location: str | None = None) -> None:
        self.reason = one_line(reason)
        self.operator = operator
        self.location = location
        where = " at ".join(part for part in (operator, location) if part)
        super().__init__(f"{where}: {self.reason}" if where else self.reason)


class NotConnected(ProgramError, SystemExit):
    """A program that is connected to no cluster executes a job. If nothing catches it, Python ends without a stack
    trace."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.code = str(self)


class ProgramExited(ProgramError):
    """A program called sys.exit. If the status is a number, the program's output says why."""

    def __init__(self, reason: str, *, status: int | str, location: str | None = None) -> None:
        self.status = status
        super().__init__(reason, location=location)


class InvalidJobGraph(ValueError):
    """A JobGraph that no cluster can run; `reasons` has one line for each error."""

    def __init__(self, reasons: Sequence[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__("; ".join(self.reasons))


def one_line(text: str) -> str:
    """Returns the text on one line, without secrets, and truncated."""
    line = redacted(" ".join(text.split()))
    return line if len(line) <= 500 else f"{line[:497]}..."


def shown(text: str) -> str:
    """Returns a name from outside: quoted, short, on one line, and without secrets."""
    text = redacted(text)
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
