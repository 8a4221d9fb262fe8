"""A ZooKeeper for tests that leave it unchanged; each test has a cluster of its own in it."""

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
    """Returns settings with a session timeout that is long enough for a busy machine, unless a test sets another."""
    return ZooKeeperSettings(
        quorum=zookeeper.connect_string, cluster_path=f"/tailrace/{next(_NUMBERS)}", session_timeout_s=30.0
    )


@pytest.fixture
def masters() -> Iterator[Callable[[ZooKeeperSettings], Master]]:
    """Creates masters, which are closed at the end."""
    made: list[Master] = []

    def make(settings: ZooKeeperSettings) -> Master:
        made.append(Master(settings, f"host:{len(made) + 1}"))
        return made[-1]

    yield make
    for master in made:
        master.close()
