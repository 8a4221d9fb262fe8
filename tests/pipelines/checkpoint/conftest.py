"""Storage of the tests: local files; the in-memory file system of fsspec, which behaves like an object store; and
local files through fsspec, which behave like any file system with an atomic rename."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from tailrace.infra.storage.storage import Storage


@pytest.fixture(scope="session", params=["file", "memory", "local"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Returns the URI of a directory that does not exist yet."""
    if request.param == "file":
        yield str(tmp_path_factory.mktemp("storage") / "base")
        return
    if request.param == "local":
        yield f"local://{tmp_path_factory.mktemp('storage')}/base"
        return
    uri = f"memory://{uuid.uuid4().hex}"
    yield uri
    Storage.open(uri).delete_tree("")


@pytest.fixture(scope="session")
def fresh(base: str) -> Callable[[], Storage]:
    """Returns a function that creates an empty storage for each example of a property."""
    return lambda: Storage.open(f"{base}/{uuid.uuid4().hex}")


@pytest.fixture
def storage(fresh: Callable[[], Storage]) -> Storage:
    """Returns an empty storage."""
    return fresh()
