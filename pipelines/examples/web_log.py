"""Parses lines of a web server's log, in the Common Log Format, for the examples that read one."""

import re
from datetime import datetime
from typing import NamedTuple

LINE = re.compile(r'(\S+) \S+ \S+ \[(.+?)\] "\S+ (\S+) \S+" (\d{3}) (\d+|-)')


class Hit(NamedTuple):
    host: str
    at: int
    """Milliseconds since the epoch."""
    path: str
    status: int
    size: int


def hits(line: str) -> list[Hit]:
    """Yields the record of a line; nothing if the line does not have the format."""
    if (found := LINE.match(line)) is None:
        return []
    host, time, path, status, size = found.groups()
    at = datetime.strptime(time, "%d/%b/%Y:%H:%M:%S %z")
    return [Hit(host, round(at.timestamp() * 1000), path, int(status), 0 if size == "-" else int(size))]
