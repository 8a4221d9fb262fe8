"""The check of `cluster doctor` writes to a real ZooKeeper and leaves no candidate; it says why it may not write."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from tailrace.infra.ports import ReservedPort
from tailrace.services.configuration.options.zookeeper import ZooKeeperAcl
from tailrace.services.election.settings import Secret, ZooKeeperSettings
from tailrace.services.election.write_check import ZooKeeperUnusable, measure_clock

from .masters import onlooker

pytestmark = pytest.mark.integration


def test_clock_of_same_machine_differs_little_and_no_node_remains(settings: ZooKeeperSettings) -> None:
    assert abs(measure_clock(settings, timeout_s=30.0)) < 5.0
    with onlooker(settings) as client:
        assert client.get_children(settings.cluster_path) == []


def test_nodes_of_another_user_cannot_be_written(settings: ZooKeeperSettings) -> None:
    own = replace(
        settings,
        cluster_path=f"/protected{settings.cluster_path}",
        acl=ZooKeeperAcl.CREATOR,
        digest=Secret("masters:swordfish"),
    )
    measure_clock(own, timeout_s=30.0)
    with pytest.raises(ZooKeeperUnusable, match="ACL of another user") as refused:
        measure_clock(replace(own, digest=Secret("others:guess")), timeout_s=30.0)
    assert "swordfish" not in str(refused.value)
    assert "guess" not in str(refused.value)


def test_server_that_does_not_answer_is_given_up_in_time(settings: ZooKeeperSettings) -> None:
    port, begin = ReservedPort(), time.monotonic()
    try:
        with pytest.raises(ZooKeeperUnusable, match="does not answer"):
            measure_clock(replace(settings, quorum=f"127.0.0.1:{port.number}"), timeout_s=0.5)
    finally:
        port.release()
    assert time.monotonic() - begin < 20.0
