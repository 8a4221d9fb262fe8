"""The log files of a process: their list, and parts of them.

A process logs to stderr. If that is a file in `<home>/log`, the other files of this directory are served, too;
otherwise only its own. Nothing else can be read: a name is one of the list, and links are not followed. Answers are
bounded, and have whole lines only, in which secrets are redacted: a part of a line could show a secret without its
name.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TextIO

import msgspec

from ...infra.redaction import redacted
from .server import JSON, TEXT, Content, Handler, Query, UnknownPath

LOGS: Final = "logs"
LOG: Final = "log"
STDOUT: Final = "stdout"
"""The paths."""
OFFSET_HEADER: Final = "Tailrace-Log-Offset"
NEXT_HEADER: Final = "Tailrace-Log-Next"
MOST_BYTES: Final = 4 << 20
"""Of one answer."""
_MOST_FILES: Final = 1_000
_LONGEST_OFFSET: Final = 20


class LogFile(msgspec.Struct, frozen=True):
    """A log file: Flink's LogInfo. `mtime` is in milliseconds since the epoch."""

    name: str
    size: int
    mtime: int


class LogPart(msgspec.Struct, frozen=True):
    """Whole lines of a file, from the byte `offset` up to `following`."""

    text: str
    offset: int
    following: int


class LogFiles:
    """The files that a process serves."""

    def __init__(self, directory: Path, streams: Mapping[str, TextIO] | None = None) -> None:
        """`directory`: where the processes of a cluster log to. `streams`: those of this process by path; None: its
        stdout and stderr."""
        self._directory = directory
        self._streams = {LOG: sys.stderr, STDOUT: sys.stdout} if streams is None else streams

    def paths(self) -> Mapping[str, Handler]:
        """Returns the paths of a diagnostics server."""
        return {LOGS: self._serve, LOG: lambda query: self._own(LOG, query), STDOUT: self._serve_stdout}

    def list(self) -> list[LogFile]:
        """Returns the files, the newest first."""
        found = [
            LogFile(name, status.st_size, int(status.st_mtime * 1_000))
            for name, (_, status) in self._known().items()
        ]
        return sorted(found, key=lambda each: (-each.mtime, each.name))[:_MOST_FILES]

    def read(self, name: str, offset: int | None) -> LogPart:
        """Returns a part of a listed file. Raises UnknownPath."""
        known = self._known().get(name)
        if known is None:
            raise UnknownPath("there is no such log file")
        return read_part(known[0], offset)

    def _serve(self, query: Query) -> Content:
        if not query.rest:
            return Content(JSON, msgspec.json.encode(self.list()))
        return _content(self.read(query.rest, _offset(query)))

    def _serve_stdout(self, query: Query) -> Content:
        return self._own(STDOUT, query)

    def _own(self, name: str, query: Query) -> Content:
        path = _file_of(self._streams[name]) if name in self._streams else None
        if path is None:
            raise UnknownPath(f"the {name} of the process is no file")
        return _content(read_part(path, _offset(query)))

    def _known(self) -> dict[str, tuple[Path, os.stat_result]]:
        own = [path for stream in self._streams.values() if (path := _file_of(stream)) is not None]
        paths = {path.name: path for path in own}
        directory = self._directory.resolve()
        if any(path.parent == directory for path in own):
            paths |= {path.name: path for path in _scan(directory)}
        found = {}
        for name, path in paths.items():
            status = _status(path)
            if status is not None:
                found[name] = path, status
        return found


def read_part(path: Path, offset: int | None) -> LogPart:
    """Returns the lines from `offset` on, or without it the last lines, at most MOST_BYTES.

    A negative offset counts from the end. If it is inside of a line, the next line is the first. With an offset, a last
    line without its end is left for the next part.

    Raises UnknownPath if it is no file any more.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        raise UnknownPath("there is no such log file") from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnknownPath("there is no such log file")
        size = status.st_size
        wanted = size - MOST_BYTES if offset is None else size + offset if offset < 0 else offset
        start = min(max(0, wanted), size)
        # The byte before shows whether a line begins here.
        before = 1 if start else 0
        file.seek(start - before)
        content = file.read(MOST_BYTES + before)
    if before:
        begin = content.find(b"\n") + 1
        if not begin:
            return LogPart("", start, start + len(content) - before)
        start += begin - before
        content = content[begin:]
    end = len(content)
    if offset is not None or start + end < size:
        last = content.rfind(b"\n") + 1
        # A line that is longer than an answer is cut, and its rest is left out.
        end = last or (end if end >= MOST_BYTES else 0)
    return LogPart(redacted(content[:end].decode("utf-8", "replace")), start, start + end)


def _content(part: LogPart) -> Content:
    headers = {OFFSET_HEADER: str(part.offset), NEXT_HEADER: str(part.following)}
    return Content(TEXT, part.text.encode(), headers)


def _offset(query: Query) -> int | None:
    """Raises ValueError."""
    text = query.parameters.get("offset")
    if text is None:
        return None
    if len(text) > _LONGEST_OFFSET:
        raise ValueError("offset is too large")
    return int(text)


def _scan(directory: Path) -> Iterator[Path]:
    try:
        with os.scandir(directory) as entries:
            yield from (Path(entry.path) for entry in entries if entry.is_file(follow_symlinks=False))
    except OSError:
        return


def _status(path: Path) -> os.stat_result | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _file_of(stream: TextIO) -> Path | None:
    """Returns the file that a stream writes to; None if it is a terminal or a pipe, or the platform does not tell."""
    try:
        path = Path(os.readlink(f"/proc/self/fd/{stream.fileno()}"))
    except (OSError, ValueError):
        return None
    return path if path.is_absolute() and _status(path) is not None else None
