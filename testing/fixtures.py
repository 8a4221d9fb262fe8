"""Fixtures for pytest. In conftest.py: `pytest_plugins = ["tailrace.testing.fixtures"]`."""

from collections.abc import Iterator

import pytest

from . import MiniCluster


@pytest.fixture
def tailrace_cluster() -> Iterator[MiniCluster]:
    """A MiniCluster for one test."""
    with MiniCluster() as cluster:
        yield cluster
