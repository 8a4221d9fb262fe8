"""The commands of the shell: each takes words, and writes lines. No terminal is needed.

Paths may have wildcards (*, ?, [...]) in every name; they are looked up in the tree, in order.
"""

from __future__ import annotations

import fnmatch
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .....infra.sanitize import escape_control_characters
from ....history.log_source import LogSource
from ....history.state_diff import diff_states
from ....history.state_tree import (
    NoSuchPath,
    NotADirectory,
    Parts,
    StateTree,
    escape,
    format_path,
    has_wildcards,
    is_directory,
    list_entries,
    parse,
)
from ....history.time_travel import state_hash
from ...args.time_travel import format_moment, replica_at, time_of
from ...exit_codes import CommandFailure, ExitCode
from ...render.output import to_json
from ...render.state import format_brief, format_lines
from ...render.state_difference import field_line

_INDENT = "    "


class Explorer:
    """A position in the tree of a state, at one offset of the log."""

    def __init__(self, source: LogSource, place: str | None) -> None:
        """Raises like `replica_at`."""
        self._source = source
        self._here: Parts = ()
        self._go_to(place)
        self.commands: Mapping[str, Callable[[list[str]], Iterator[str]]] = {
            "ls": self._ls,
            "cat": self._cat,
            "tree": self._tree_of,
            "find": self._find,
            "cd": self._cd,
            "pwd": self._pwd,
            "at": self._at,
            "diff": self._diff,
            "help": self._help,
            "exit": self._help,
        }

    def prompt(self) -> str:
        """Returns the prompt: the position."""
        return escape_control_characters(
            f"{self._source.cluster}@{self._replica.offset}:{format_path(self._here)}> "
        )

    def where(self) -> str:
        """Returns the offset and its time."""
        time = format_moment(time_of(self._source, self._replica.offset))
        return escape_control_characters(
            f"{self._source.log.topic} behind offset {self._replica.offset}{f', {time}' if time else ''}"
        )

    def do(self, line: str) -> bool:
        """Runs the commands of a line, in order, and writes their output to stdout; returns False if one ends the
        shell.

        Raises CommandFailure, and the errors of `replica_at`.
        """
        for words in split_commands(line):
            name, *arguments = words
            if name in ("exit", "quit"):
                return False
            command = self.commands.get(name)
            if command is None:
                raise usage_error(f"there is no command {name!r}: there are {', '.join(self.commands)}")
            for text in command(arguments):
                sys.stdout.write(f"{text}\n")
            sys.stdout.flush()
        return True

    def cancel(self) -> None:
        """Does nothing: no command has several lines."""

    def completions(self, text: str, *, is_first: bool) -> list[str]:
        """Returns the commands, or the paths, that begin with the text."""
        if is_first:
            return [f"{command} " for command in self.commands if command.startswith(text)]
        head, slash, start = text.rpartition("/")
        try:
            entries = list_entries(self._tree.at(parse(head + slash, self._here))) or {}
        except (NoSuchPath, NotADirectory):
            return []
        found = []
        for name in entries:
            shown = escape(name)
            if shown.startswith(start):
                found.append(f"{head}{slash}{shown}{'/' if is_directory(entries, name) else ' '}")
        return found

    # The commands

    def _ls(self, words: list[str]) -> Iterator[str]:
        """ls [-l] [PATH]...: what is in directories; -l: with values, and how many entries there are"""
        options, paths = parse_options(words, {"-l": False}, "ls")
        found = self._resolve_path(paths or ["."])
        long = bool(options["-l"])
        for parts in found:
            entries = list_entries(self._tree.at(parts))
            if entries is None:
                yield _list_entry(format_path(parts), self._tree.at(parts), long=long)
                continue
            if len(found) > 1:
                yield f"{escape_control_characters(format_path(parts))}:"
            if long:
                yield from (_list_entry(escape(name), entries[name], long=True) for name in entries)
                continue
            names = [
                escape_control_characters(f"{escape(entry)}{'/' if is_directory(entries, entry) else ''}")
                for entry in entries
            ]
            yield from _in_columns(names) if sys.stdout.isatty() else names

    def _cat(self, words: list[str]) -> Iterator[str]:
        """cat [-j] PATH...: values, and all that is in directories; -j: as JSON, one line for each path"""
        options, paths = parse_options(words, {"-j": False}, "cat")
        if not paths:
            raise usage_error("cat PATH...: what is to be shown?")
        for parts in self._resolve_path(paths):
            found = self._tree.at(parts)
            if options["-j"]:
                yield to_json(_plain(found))
            elif list_entries(found) is None:
                yield _value(found)
            else:
                yield from format_lines(_plain(found))

    def _tree_of(self, words: list[str]) -> Iterator[str]:
        """tree [-L DEPTH] [PATH]...: all that is below, indented"""
        options, paths = parse_options(words, {"-L": True}, "tree")
        depth = number(options["-L"], "tree -L")
        for start in self._resolve_path(paths or ["."]):
            for parts, found in self._tree.walk(start, depth):
                level = len(parts) - len(start)
                name = escape(parts[-1]) if level else format_path(start)
                below = "/" if level else ""
                end = f": {format_brief(found)}" if list_entries(found) is None else below
                yield f"{_INDENT * level}{escape_control_characters(name)}{end}"

    def _find(self, words: list[str]) -> Iterator[str]:
        """find [PATH]... [-name NAME] [-value VALUE]: paths whose last name, whose value is such; with wildcards"""
        options, paths = parse_options(words, {"-name": True, "-value": True}, "find")
        name, value = options["-name"], options["-value"]
        for start in self._resolve_path(paths or ["."]):
            for parts, found in self._tree.walk(start):
                if name is not None and not (parts and fnmatch.fnmatchcase(escape(parts[-1]), str(name))):
                    continue
                if value is not None and not _is_value(found, str(value)):
                    continue
                yield escape_control_characters(format_path(parts))

    def _cd(self, words: list[str]) -> Iterator[str]:
        """cd [PATH]: goes there; without one, to the root"""
        _, paths = parse_options(words, {}, "cd")
        found = self._resolve_path(paths or ["/"])
        if len(found) != 1 or len(paths) > 1:
            raise usage_error(f"cd [PATH]: {' '.join(paths)} are {len(found)} places")
        if list_entries(self._tree.at(found[0])) is None:
            raise usage_error(f"{format_path(found[0])} is a value, no directory")
        self._here = found[0]
        yield from ()

    def _pwd(self, words: list[str]) -> Iterator[str]:
        """pwd: the current directory"""
        parse_options(words, {}, "pwd")
        yield escape_control_characters(format_path(self._here))

    def _at(self, words: list[str]) -> Iterator[str]:
        """at [OFFSET|TIME|end]: goes to another moment of the log; without one, tells which this is"""
        if len(words) > 1:
            raise usage_error("at [OFFSET|TIME|end]: one moment at a time")
        if words:
            self._go_to(None if words[0] == "end" else words[0])
            while self._here:
                try:
                    self._tree.at(self._here)
                    break
                except (NoSuchPath, NotADirectory):
                    self._here = self._here[:-1]
        yield self.where()

    def _diff(self, words: list[str]) -> Iterator[str]:
        """diff OFFSET|TIME|end [PATH]...: what is not the same at another moment, from here to there"""
        if not words:
            raise usage_error("diff OFFSET|TIME|end [PATH]...: which other moment?")
        place, *paths = words
        other = replica_at(self._source, None if place == "end" else place)
        wanted = self._resolve_path(paths) if paths else [self._here]
        for change in diff_states(self._replica, other).changes:
            parts = tuple(map(str, change.path))
            if any(parts[: len(path)] == path for path in wanted):
                yield field_line(change)

    def _help(self, words: list[str]) -> Iterator[str]:
        """help: this"""
        for name, command in self.commands.items():
            yield "exit: the end" if name == "exit" else str(command.__doc__).strip()

    def _go_to(self, place: str | None) -> None:

        self._replica = replica = replica_at(self._source, place)
        about = {
            "offset": replica.offset,
            "time": format_moment(time_of(self._source, replica.offset)),
            "state_hash": state_hash(replica),
            "feature_level": replica.leadership.feature_level,
        }
        self._tree = StateTree(replica, about)

    def _resolve_path(self, paths: list[str]) -> list[Parts]:
        """Returns the places that paths and patterns name. Raises CommandFailure if one names nothing."""
        found: list[Parts] = []
        try:
            for path in paths:
                parts = parse(path, self._here)
                if not any(map(has_wildcards, parts)):
                    self._tree.at(parts)
                    found.append(parts)
                    continue
                matches = list(self._tree.matching((), parts))
                if not matches:
                    raise CommandFailure(ExitCode.NOT_FOUND, f"nothing is called {path}")
                found += matches
        except (NoSuchPath, NotADirectory) as error:
            raise CommandFailure(ExitCode.NOT_FOUND, str(error)) from None
        return found


def _in_columns(names: list[str]) -> Iterator[str]:
    """Arranges texts in as many columns as the terminal has room for, filled column by column."""
    width = max(map(len, names), default=0) + 2
    columns = max(1, shutil.get_terminal_size().columns // width)
    rows = -(-len(names) // columns)
    for row in range(rows):
        yield "".join(name.ljust(width) for name in names[row::rows]).rstrip()


def _list_entry(name: str, value: Any, *, long: bool) -> str:

    entries = list_entries(value)
    if entries is None:
        return escape_control_characters(f"{name}: {format_brief(value)}" if long else name)
    count = f" {len(entries):,} entr{'y' if len(entries) == 1 else 'ies'}" if long else ""
    return escape_control_characters(f"{name}/{count}")


def _is_value(found: Any, pattern: str) -> bool:

    return list_entries(found) is None and fnmatch.fnmatchcase(_value(found), pattern)


def _value(value: Any) -> str:
    """Returns a value unquoted if it is a text, else as JSON."""
    if isinstance(value, str):
        return "\n".join(map(escape_control_characters, value.split("\n")))
    return to_json(value)


def _plain(found: Any) -> Any:
    """Converts a value to dicts and lists."""
    if isinstance(found, Mapping):
        return {name: _plain(found[name]) for name in found}
    return found


def usage_error(message: str) -> CommandFailure:
    """Returns the error for a command with wrong arguments."""
    return CommandFailure(ExitCode.USAGE, message)


def split_commands(line: str) -> Iterator[list[str]]:
    """Returns the words of each command of a line; ; ends a command, # begins a comment. Raises CommandFailure."""
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
        raise usage_error(f"{line.strip()!r} can't be read: {str(error).lower()}") from None
    if words:
        yield words


def parse_options(
    words: list[str], known: Mapping[str, bool], command: str
) -> tuple[dict[str, str | bool | None], list[str]]:
    """Returns the options and the other words; `known`: option -> whether it takes a value. Raises CommandFailure."""
    options: dict[str, str | bool | None] = dict.fromkeys(known)
    others: list[str] = []
    left = iter(words)
    for word in left:
        if not word.startswith("-") or word == "-":
            others.append(word)
        elif word not in known:
            there = f"there are {', '.join(known)}" if known else "it has none"
            raise usage_error(f"{command} has no option {word}: {there}")
        elif known[word]:
            value = next(left, None)
            if value is None:
                raise usage_error(f"{command} {word}: a value is missing")
            options[word] = value
        else:
            options[word] = True
    return options, others


def number(text: str | bool | None, what: str) -> int | None:
    """Returns the number of an option, if given. Raises CommandFailure."""
    if text is None:
        return None
    if not str(text).isdecimal():
        raise usage_error(f"{what} takes a number, not {text!r}")
    return int(text)
