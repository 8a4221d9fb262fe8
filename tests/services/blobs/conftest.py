"""BlobServers for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.services.blobs.protocol import Timeouts
from tailrace.services.blobs.server import BlobServer, ServerLimits
from tailrace.services.blobs.store import BlobStore

LARGEST = 4 << 20
QUICK = Timeouts(idle=1.0, header=0.5, slowest=1 << 20)

StartServer = Callable[..., BlobServer]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartServer]:
    """Starts BlobServers over one directory unless another is given; they are closed at the end."""
    with ExitStack() as stack:

        def start_server(
            directory: Path | None = None,
            store: BlobStore | None = None,
            *,
            pace: Timeouts | None = None,
            connections: int = 50,
        ) -> BlobServer:
            limits = ServerLimits(connections=connections, largest=LARGEST, pace=pace or Timeouts())
            return stack.enter_context(BlobServer(directory or tmp_path / "server", store, limits=limits))

        yield start_server
