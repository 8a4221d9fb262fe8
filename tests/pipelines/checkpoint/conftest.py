"""Where the tests keep their files: on this machine, where files can grow, and in fsspec's memory, where they can't."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from tailrace.pipelines.checkpoint.storage import Storage


@pytest.fixture(scope="session", params=["file", "memory"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a directory that is not there yet."""
    if request.param == "file":
        yield str(tmp_path_factory.mktemp("storage") / "base")
        return
    uri = f"memory://{uuid.uuid4().hex}"
    yield uri
    Storage.open(uri).delete_tree("")


@pytest.fixture(scope="session")
def fresh(base: str) -> Callable[[], Storage]:
    """Makes a storage with nothing in it, for each example of a property."""
    return lambda: Storage.open(f"{base}/{uuid.uuid4().hex}")


@pytest.fixture
def storage(fresh: Callable[[], Storage]) -> Storage:
    """With nothing in it."""
    return fresh()
