"""Runs a BlobServer in a process of its own, for tests that kill it: `python serving.py DIRECTORY`."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from tailrace.services.blobs.server import BlobServer

if __name__ == "__main__":
    print(BlobServer(Path(sys.argv[1])).address, flush=True)
    threading.Event().wait()
