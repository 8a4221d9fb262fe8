"""An HTTP server that answers each request after the same time, in a process of its own: prints its port, and at the
end of its input the most requests that it had at a time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class SlowServer:
    """The server as its client sees it."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self._process = process
        self.port = port
        self.most_in_flight = 0
        """Known after the end."""

    def end(self) -> None:
        """Ends the process."""
        out, _ = self._process.communicate(timeout=30)
        self.most_in_flight = int(out)


@contextmanager
def slow_server(delay_s: float) -> Iterator[SlowServer]:
    """Yields a server; it has ended afterwards."""
    command = [sys.executable, str(Path(__file__)), str(delay_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        server = SlowServer(process, int(process.stdout.readline()))
        yield server
        server.end()


async def _serve(delay_s: float) -> None:
    in_flight = most = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal in_flight, most
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                in_flight += 1
                most = max(most, in_flight)
                await asyncio.sleep(delay_s)
                in_flight -= 1
                writer.write(ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=2_000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(most, flush=True)
    os._exit(0)  # connections are still open


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))
