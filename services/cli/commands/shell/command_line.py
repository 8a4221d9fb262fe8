"""How a line of the shell is read: commands, their options, and other words."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping


class CommandFailed(Exception):
    """A command can't be done; the message says why, in one line. `missing`: what it is about is not there."""

    def __init__(self, why: str, *, missing: bool = False) -> None:
        self.missing = missing
        super().__init__(why)


def split_commands(line: str) -> Iterator[list[str]]:
    """The words of each command of a line; ; ends one, # begins a remark. Raises CommandFailed."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";")
    lexer.whitespace_split = True
    words: list[str] = []
    try:
        for token in lexer:
            if token.strip(";"):
                words.append(token)
            elif words:
                yield words
                words = []
    except ValueError as error:
        raise CommandFailed(f"{line.strip()!r} can't be read: {str(error).lower()}") from None
    if words:
        yield words


def parse_options(
    words: list[str], known: Mapping[str, bool], command: str
) -> tuple[dict[str, str | bool | None], list[str]]:
    """The options and the other words; `known`: option -> whether a value follows it. Raises CommandFailed."""
    options: dict[str, str | bool | None] = dict.fromkeys(known)
    others: list[str] = []
    left = iter(words)
    for word in left:
        if not word.startswith("-") or word == "-":
            others.append(word)
        elif word not in known:
            there = f"there are {', '.join(known)}" if known else "it has none"
            raise CommandFailed(f"{command} has no option {word}: {there}")
        elif known[word]:
            value = next(left, None)
            if value is None:
                raise CommandFailed(f"{command} {word}: a value is missing")
            options[word] = value
        else:
            options[word] = True
    return options, others


def number(text: str | bool | None, what: str) -> int | None:
    """The number that was given to an option, if it was. Raises CommandFailed."""
    if text is None:
        return None
    if not str(text).isdecimal():
        raise CommandFailed(f"{what} takes a number, not {text!r}")
    return int(text)
