"""Lists the candidates of a cluster in ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from polling import wait_until

from tailrace.services.election.candidates import ElectionUnreachable
from tailrace.services.election.paths import Paths
from tailrace.services.election.settings import ZooKeeperSettings
from tailrace.services.election.zookeeper_candidates import ZooKeeperCandidatesReader

from ...fault_injection.network_link import NetworkLink
from .masters import Master, onlooker

pytestmark = pytest.mark.integration

Make = Callable[[ZooKeeperSettings], Master]


def test_candidates_of_one_cluster_are_listed_leader_first(
    settings: ZooKeeperSettings, masters: Make
) -> None:
    one, other = masters(settings), masters(settings)
    neighbour = masters(msgspec.structs.replace(settings, cluster_path=settings.cluster_path + "-neighbour"))
    for master in (neighbour, one):
        master.join()
        master.leads()
    with onlooker(settings) as kazoo, ZooKeeperCandidatesReader(settings) as reader:
        kazoo.ensure_path(f"{Paths.from_settings(settings).latch}/unknown")
        assert reader.candidates() == ["host:1"]
        other.join()
        wait_until(lambda: reader.candidates() == ["host:1", "host:2"])
        one.rejoin()
        wait_until(lambda: reader.candidates() == ["host:2", "host:1"])
    assert neighbour.believes()


def test_unknown_cluster_has_no_candidates(settings: ZooKeeperSettings) -> None:
    with ZooKeeperCandidatesReader(settings) as reader:
        assert reader.candidates() == []


def test_unreachable_zookeeper_is_named() -> None:
    with NetworkLink("127.0.0.1:1") as link:
        link.sever()
        settings = ZooKeeperSettings(
            quorum=link.address, cluster_path="/tailrace/c", connection_timeout_s=0.2
        )
        with pytest.raises(ElectionUnreachable, match=link.address) as error:
            ZooKeeperCandidatesReader(settings, timeout_s=0.3)
    assert "\n" not in str(error.value)
