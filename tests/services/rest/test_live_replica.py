"""What a server says about its distance from the end of the log."""

from __future__ import annotations

import http.client
import threading
from contextlib import closing

from polling import wait_until

from tailrace.services.log.memory import Entry, MemoryEventLog

from .live_server import LiveServer, append, golden_records, serve


class PausedLog(MemoryEventLog):
    """A log whose readers get no event while it is paused; its end is still known."""

    def __init__(self) -> None:
        super().__init__()
        self.flows = threading.Event()
        self.flows.set()

    def entries_from(self, offset: int, timeout_s: float) -> list[Entry]:
        if not self.flows.wait(timeout_s):
            return []
        found = super().entries_from(offset, timeout_s)
        return found if self.flows.is_set() else []


def is_at(server: LiveServer, offset: int, lag: int) -> bool:
    """Whether an answer of the present is true at the offset, and names the lag."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=90)) as connection:
        connection.request("GET", "/jobs/overview")
        answer = connection.getresponse()
        assert answer.status == 200
        answer.read()
        return (answer.headers["Tailrace-Offset"], answer.headers["Tailrace-Lag"]) == (str(offset), str(lag))


def test_server_whose_reader_stands_still_says_how_far_it_is_behind() -> None:
    records, log = golden_records("a_job_finishes"), PausedLog()
    append(log, records[:10])
    before = log.end()
    with serve(log) as server:
        assert is_at(server, before - 1, 0)
        log.flows.clear()
        for record in records[10:20]:
            append(log, [record])
        now = log.end()
        wait_until(lambda: is_at(server, before - 1, now - before), "the server to say that it is behind")
        log.flows.set()
        wait_until(lambda: is_at(server, now - 1, 0), "the server to be current")
