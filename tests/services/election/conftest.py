"""A ZooKeeper and an API server of Kubernetes for tests that leave them unchanged; each test has its own cluster."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubernetes_api import KubernetesApi, KubernetesMock

from tailrace.infra.zookeeper import EmbeddedZooKeeper
from tailrace.services.election.kubernetes_settings import KubernetesElectionSettings
from tailrace.services.election.settings import ZooKeeperSettings
from tailrace.services.kubernetes.api_client import Place

from .electorates import Electorate, kubernetes_electorate, zookeeper_electorate
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


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[KubernetesMock]:
    with KubernetesMock() as running:
        yield running


@pytest.fixture
def kubernetes_api(kubernetes: KubernetesMock, tmp_path: Path) -> Iterator[KubernetesApi]:
    with KubernetesApi(kubernetes, f"n{next(_NUMBERS)}", tmp_path) as running:
        yield running


@pytest.fixture
def kubernetes_settings(kubernetes_api: KubernetesApi) -> KubernetesElectionSettings:
    """Returns settings with a lease duration that is long enough for a busy machine, unless a test sets another."""
    place = Place(kubernetes_api.namespace, str(kubernetes_api.config_file))
    return KubernetesElectionSettings(place=place, cluster_id="c", duration_s=30, retry_s=0.5)


@pytest.fixture(params=["zookeeper", "kubernetes"])
def electorate(request: pytest.FixtureRequest) -> Iterator[Electorate]:
    """Returns the election of a cluster by each of the services."""
    value = request.getfixturevalue
    if request.param == "zookeeper":
        with zookeeper_electorate(value("zookeeper"), value("settings")) as electorate:
            yield electorate
    else:
        with kubernetes_electorate(value("kubernetes_api"), value("kubernetes_settings")) as electorate:
            yield electorate
