"""Storage for the checkpoints of tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tailrace.infra.storage.storage import Storage
from tailrace.pipelines.runtime.stream_task.state import full_snapshot, state_writer


@contextmanager
def storage(seed: int) -> Iterator[str]:
    """Yields a temporary directory for checkpoints: on this machine, or in a file system without append.

    Meanwhile a full snapshot is written after a few hundred bytes of changes, and its sections are as small.
    """
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_writer, "LEAST_CHAIN", 300)
        patch.setattr(state_writer, "MAX_FILES", 4)
        patch.setattr(full_snapshot, "MAX_SECTION_BYTES", 500)
        if seed % 3:
            yield folder
        else:
            uri = f"memory://{folder}"
            try:
                yield uri
            finally:
                Storage.open(uri).delete_tree("")
