"""A prompt on a terminal, for `tailrace shell` and `tailrace sql`: lines with a history, completed with Tab."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..exit_codes import to_failure


class PromptHandler(Protocol):
    """Runs the lines of a prompt."""

    def prompt(self) -> str:
        """Returns the text before the next line."""
        ...

    def do(self, line: str) -> bool:
        """Runs a line; returns False if it ends the prompt. May raise what `to_failure` maps to an exit code."""
        ...

    def cancel(self) -> None:
        """Drops a command that is not complete yet."""
        ...

    def completions(self, text: str, *, is_first: bool) -> list[str]:
        """Returns the completions of the last word of a line; `is_first`: it is the first word."""
        ...


def run_prompt(intro: str, handler: PromptHandler, delimiters: str) -> None:
    """Reads lines until one ends it, or Ctrl-D. `delimiters`: the characters between words. Prints expected errors."""
    _set_completer(handler.completions, delimiters)
    print(intro)
    while True:
        try:
            if not handler.do(input(handler.prompt())):
                return
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            # As in other shells: drops the line, or interrupts the running command.
            print("^C")
            handler.cancel()
        except Exception as error:
            known = to_failure(error)
            if known is None:
                raise
            print(" ".join(str(known).split()))


def _set_completer(completions: Callable[..., list[str]], delimiters: str) -> None:
    try:
        import readline
    except ImportError:
        return

    def complete(text: str, state: int) -> str | None:
        found = completions(text, is_first=readline.get_begidx() == 0)
        return found[state] if state < len(found) else None

    readline.set_completer_delims(delimiters)
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
