"""A ZooKeeper for the tests that leave it as it was; each test has a cluster of its own in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tailrace.infra.zookeeper import EmbeddedZooKeeper
from tailrace.services.election.settings import ZooKeeperSettings

from .masters import Master

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper() as running:
        yield running


@pytest.fixture
def settings(zookeeper: EmbeddedZooKeeper) -> ZooKeeperSettings:
    """A session is not to run out on a busy machine, unless a test wants it to."""
    return ZooKeeperSettings(
        quorum=zookeeper.connect_string, cluster_path=f"/tailrace/{next(_NUMBERS)}", session_timeout_s=30.0
    )


@pytest.fixture
def masters() -> Iterator[Callable[[ZooKeeperSettings], Master]]:
    """Makes masters, which are closed at the end."""
    made: list[Master] = []

    def make(settings: ZooKeeperSettings) -> Master:
        made.append(Master(settings, f"host:{len(made) + 1}"))
        return made[-1]

    yield make
    for master in made:
        master.close()
