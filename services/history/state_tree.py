"""Presents the states of a replica as a file tree: states and their containers are directories, values are files.

    /offset  /time  /state_hash  /feature_level        the moment
    /leaders/ROLE/...                                   the leaders
    /dispatcher/...  /resource_manager/...              the states of roles with one instance
    /job_master/JOB/...  /task_executor/RESOURCE/...    the states of roles with many instances

A state becomes data at its first access. A name is a key with %2F for a slash and %25 for a percent sign, so each path
names one place.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..core.replica import Replica
from ..core.role import instance_of, kind_of
from .to_builtins import to_builtins

LEADERS, LEVEL = "leaders", "feature_level"
_ESCAPED = {"%": "%25", "/": "%2F"}
Parts = tuple[str, ...]
"""A path from the root, as keys."""


class NoSuchPath(LookupError):
    """There is no entry of that name; the message names the directory, and a similar name."""


class NotADirectory(LookupError):
    """A value has no entries."""


class Branch(Mapping[str, Any]):
    """A directory whose entries are made at their first access."""

    def __init__(self, entries: Mapping[str, Callable[[], Any]], *, of_directories: bool = False) -> None:
        """`of_directories`: whether all entries are directories."""
        self._entries = entries
        self.of_directories = of_directories
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._entries[name]()
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class StateTree:
    """The states of one moment as a tree."""

    def __init__(self, replica: Replica, about: Mapping[str, Any]) -> None:
        """`about`: further values at the root."""
        top: dict[str, Callable[[], Any]] = {name: _constant(value) for name, value in about.items()}
        many: dict[str, dict[str, Callable[[], Any]]] = {}
        top[LEADERS] = lambda: to_builtins(replica.leadership.leaders)
        for address in sorted(replica.states):
            kind, *instance = state_path(address)
            if instance:
                many.setdefault(kind, {})[instance[0]] = _state(replica, address)
            else:
                top[kind] = _state(replica, address)
        top.update((kind, _constant(Branch(entries, of_directories=True))) for kind, entries in many.items())
        self.root = Branch(top)

    def at(self, parts: Parts) -> Any:
        """Returns a Mapping of entries, or a value. Raises NoSuchPath, NotADirectory."""
        found: Any = self.root
        for depth, name in enumerate(parts):
            entries = list_entries(found)
            if entries is None:
                raise NotADirectory(f"{format_path(parts[:depth])} is a value, and has nothing below it")
            if name not in entries:
                near = difflib.get_close_matches(name, map(str, entries), 1, 0.6)
                hint = f": did you mean {escape(near[0])}?" if near else ""
                raise NoSuchPath(f"there is no {escape(name)} in {format_path(parts[:depth])}{hint}")
            found = entries[name]
        return found

    def walk(self, parts: Parts, depth: int | None = None) -> Iterator[tuple[Parts, Any]]:
        """Yields a place and all below, a directory before its entries; at most `depth` levels below."""
        return _walk(parts, self.at(parts), depth)

    def matching(self, parts: Parts, pattern: Sequence[str]) -> Iterator[Parts]:
        """Yields the paths below a path that match a pattern of names (*, ?, [...])."""
        if not pattern:
            yield parts
            return
        entries = list_entries(self.at(parts))
        if entries is None:
            return
        wanted, *rest = pattern
        if wanted in entries or not has_wildcards(wanted):
            if wanted in entries:
                yield from self.matching((*parts, wanted), rest)
            return
        matches = re.compile(fnmatch.translate(wanted)).fullmatch
        for name in entries:
            if matches(name):
                yield from self.matching((*parts, name), rest)


def _walk(parts: Parts, found: Any, depth: int | None) -> Iterator[tuple[Parts, Any]]:
    yield parts, found
    entries = list_entries(found)
    if entries is not None and depth != 0:
        for name in entries:
            yield from _walk((*parts, name), entries[name], None if depth is None else depth - 1)


def list_entries(found: Any) -> Mapping[str, Any] | None:
    """Returns the entries of a directory by name; None for a value."""
    if isinstance(found, Mapping):
        return found
    if isinstance(found, list):
        return {str(place): each for place, each in enumerate(found)}
    return None


def is_directory(entries: Mapping[str, Any], name: str) -> bool:
    """Returns whether an entry of a directory is a directory."""
    return (isinstance(entries, Branch) and entries.of_directories) or list_entries(entries[name]) is not None


def parse(path: str, here: Parts) -> Parts:
    """Parses a path from the root or from `here`; resolves `..` and `.`."""
    parts = [] if path.startswith("/") else list(here)
    for name in path.split("/"):
        if name == "..":
            parts = parts[:-1]
        elif name not in ("", "."):
            parts.append(unescape(name))
    return tuple(parts)


def format_path(parts: Sequence[str]) -> str:
    """Returns the path from the root as text."""
    return "/" + "/".join(map(escape, parts))


def state_path(address: str) -> Parts:
    """Returns the path of the state of an address."""
    instance = instance_of(address)
    return (kind_of(address), instance) if instance else (kind_of(address),)


def escape(name: str) -> str:
    """Returns a key as a name in a path."""
    return (
        re.sub("[%/]", lambda found: _ESCAPED[found.group()], name)
        if name not in ("", ".", "..")
        else f"%{name}"
    )


def unescape(name: str) -> str:
    """Returns the key of a name."""
    if name in ("%", "%.", "%.."):
        return name[1:]
    return re.sub("%2[5Ff]", lambda found: "%" if found.group() == "%25" else "/", name)


def has_wildcards(name: str) -> bool:
    """Returns whether a name has wildcards."""
    return any(character in name for character in "*?[")


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def _state(replica: Replica, address: str) -> Callable[[], Any]:
    return lambda: to_builtins(replica.states[address])
