"""The commands of the shell: each takes words, and writes lines. No terminal is needed.

Paths may have wildcards (*, ?, [...]) in every name; they are looked up in the tree, in order.
"""

from __future__ import annotations

import fnmatch
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .....infra.sanitize import escape_control_characters
from ...args.time_travel import format_moment, replica_at, time_of, to_json
from ...render.state import format_brief, format_lines
from .command_line import CommandFailed, number, parse_options, split_commands

if TYPE_CHECKING:
    from ....core.replica import Replica
    from ....history.log_source import LogSource
    from ....history.state_tree import Parts

_INDENT = "    "


class Explorer:
    """Where somebody is, in time and in the tree."""

    def __init__(self, source: LogSource, place: str | None) -> None:
        """Raises as `moments.replica_at`."""
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
        """Where one is, for the next command."""
        from ....history.state_tree import format_path

        return escape_control_characters(
            f"{self._source.cluster}@{self._replica.offset}:{format_path(self._here)}> "
        )

    def where(self) -> str:
        """Which moment this is."""
        time = format_moment(time_of(self._source, self._replica.offset))
        return escape_control_characters(
            f"{self._source.log.topic} behind offset {self._replica.offset}{f', {time}' if time else ''}"
        )

    def do(self, line: str) -> bool:
        """Does the commands of a line, in order, and writes what they say to stdout; False: the end was asked for.

        Raises CommandFailed, and what `moments.replica_at` does.
        """
        for words in split_commands(line):
            name, *arguments = words
            if name in ("exit", "quit"):
                return False
            command = self.commands.get(name)
            if command is None:
                raise CommandFailed(f"there is no command {name!r}: there are {', '.join(self.commands)}")
            for each in command(arguments):
                sys.stdout.write(f"{each}\n")
            sys.stdout.flush()
        return True

    def completions(self, text: str) -> list[str]:
        """The paths that begin so."""
        from ....history.state_tree import (
            NoSuchPath,
            NotADirectory,
            escape,
            is_directory,
            list_entries,
            parse,
        )

        head, slash, begun = text.rpartition("/")
        try:
            entries = list_entries(self._tree.at(parse(head + slash, self._here))) or {}
        except (NoSuchPath, NotADirectory):
            return []
        found = []
        for name in entries:
            shown = escape(name)
            if shown.startswith(begun):
                found.append(f"{head}{slash}{shown}{'/' if is_directory(entries, name) else ' '}")
        return found

    # The commands

    def _ls(self, words: list[str]) -> Iterator[str]:
        """ls [-l] [PATH]...: what is in directories; -l: with values, and how many entries there are"""
        from ....history.state_tree import escape, format_path, is_directory, list_entries

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
                escape_control_characters(f"{escape(each)}{'/' if is_directory(entries, each) else ''}")
                for each in entries
            ]
            yield from _in_columns(names) if sys.stdout.isatty() else names

    def _cat(self, words: list[str]) -> Iterator[str]:
        """cat [-j] PATH...: values, and all that is in directories; -j: as JSON, one line for each path"""
        from ....history.state_tree import list_entries

        options, paths = parse_options(words, {"-j": False}, "cat")
        if not paths:
            raise CommandFailed("cat PATH...: what is to be shown?")
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
        from ....history.state_tree import escape, format_path, list_entries

        options, paths = parse_options(words, {"-L": True}, "tree")
        depth = number(options["-L"], "tree -L")
        for start in self._resolve_path(paths or ["."]):
            for parts, found in self._tree.walk(start, depth):
                level = len(parts) - len(start)
                name = escape(parts[-1]) if level else format_path(start)
                is_directory = list_entries(found) is not None
                end = ("/" if level else "") if is_directory else f": {format_brief(found)}"
                yield f"{_INDENT * level}{escape_control_characters(name)}{end}"

    def _find(self, words: list[str]) -> Iterator[str]:
        """find [PATH]... [-name NAME] [-value VALUE]: paths whose last name, whose value is such; with wildcards"""
        from ....history.state_tree import escape, format_path

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
        from ....history.state_tree import format_path, list_entries

        _, paths = parse_options(words, {}, "cd")
        found = self._resolve_path(paths or ["/"])
        if len(found) != 1 or len(paths) > 1:
            raise CommandFailed(f"cd [PATH]: {' '.join(paths)} are {len(found)} places")
        if list_entries(self._tree.at(found[0])) is None:
            raise CommandFailed(f"{format_path(found[0])} is a value, no directory")
        self._here = found[0]
        yield from ()

    def _pwd(self, words: list[str]) -> Iterator[str]:
        """pwd: where one is"""
        from ....history.state_tree import format_path

        parse_options(words, {}, "pwd")
        yield escape_control_characters(format_path(self._here))

    def _at(self, words: list[str]) -> Iterator[str]:
        """at [OFFSET|TIME|end]: goes to another moment of the log; without one, tells which this is"""
        from ....history.state_tree import NoSuchPath, NotADirectory

        if len(words) > 1:
            raise CommandFailed("at [OFFSET|TIME|end]: one moment at a time")
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
        from ....history.state_diff import diff_states
        from ....history.state_tree import change_path
        from ..diff import field_line

        if not words:
            raise CommandFailed("diff OFFSET|TIME|end [PATH]...: which other moment?")
        place, *paths = words
        other = self._replica_at(None if place == "end" else place)
        wanted = self._resolve_path(paths) if paths else [self._here]
        for change in diff_states(self._replica, other).changes:
            parts = change_path(change.path)
            if any(parts[: len(each)] == each for each in wanted):
                yield field_line(change)

    def _help(self, words: list[str]) -> Iterator[str]:
        """help: this"""
        for name, command in self.commands.items():
            yield "exit: the end" if name == "exit" else str(command.__doc__).strip()

    # What they have in common

    def _go_to(self, place: str | None) -> None:
        from ....history.state_tree import StateTree
        from ....history.time_travel import state_hash

        self._replica = replica = self._replica_at(place)
        about = {
            "offset": replica.offset,
            "time": format_moment(time_of(self._source, replica.offset)),
            "state_hash": state_hash(replica),
            "feature_level": replica.leadership.feature_level,
        }
        self._tree = StateTree(replica, about)

    def _replica_at(self, place: str | None) -> Replica:
        from ....history.log_position import InvalidPosition, PositionOutOfRange

        try:
            return replica_at(self._source, place)
        except (InvalidPosition, PositionOutOfRange) as error:
            raise CommandFailed(str(error), missing=isinstance(error, PositionOutOfRange)) from None

    def _resolve_path(self, paths: list[str]) -> list[Parts]:
        """What the paths mean. Raises CommandFailed for one that means nothing."""
        from ....history.state_tree import NoSuchPath, NotADirectory, has_wildcards, parse

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
                    raise CommandFailed(f"nothing is called {path}", missing=True)
                found += matches
        except (NoSuchPath, NotADirectory) as error:
            raise CommandFailed(str(error), missing=True) from None
        return found


def _in_columns(names: list[str]) -> Iterator[str]:
    """As many beside each other as a terminal has room for, one below the other first."""
    width = max(map(len, names), default=0) + 2
    columns = max(1, shutil.get_terminal_size().columns // width)
    rows = -(-len(names) // columns)
    for row in range(rows):
        yield "".join(name.ljust(width) for name in names[row::rows]).rstrip()


def _list_entry(name: str, value: Any, *, long: bool) -> str:
    from ....history.state_tree import list_entries

    entries = list_entries(value)
    if entries is None:
        return escape_control_characters(f"{name}: {format_brief(value)}" if long else name)
    count = f" {len(entries):,} entr{'y' if len(entries) == 1 else 'ies'}" if long else ""
    return escape_control_characters(f"{name}/{count}")


def _is_value(found: Any, pattern: str) -> bool:
    from ....history.state_tree import list_entries

    return list_entries(found) is None and fnmatch.fnmatchcase(_value(found), pattern)


def _value(value: Any) -> str:
    """A value as it is: a text without quotes, all else as in JSON."""
    if isinstance(value, str):
        return "\n".join(map(escape_control_characters, value.split("\n")))
    return to_json(value)


def _plain(found: Any) -> Any:
    """All of it as dicts and lists."""
    if isinstance(found, Mapping):
        return {name: _plain(found[name]) for name in found}
    return found
