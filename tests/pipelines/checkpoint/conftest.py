"""Where the tests keep their files: on this machine; in fsspec's memory, which is like an object store; and on this
machine through fsspec, which is like any other file system whose renaming is atomic."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from tailrace.infra.storage.storage import Storage


@pytest.fixture(scope="session", params=["file", "memory", "local"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a directory that is not there yet."""
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
    """Makes a storage with nothing in it, for each example of a property."""
    return lambda: Storage.open(f"{base}/{uuid.uuid4().hex}")


@pytest.fixture
def storage(fresh: Callable[[], Storage]) -> Storage:
    """With nothing in it."""
    return fresh()
