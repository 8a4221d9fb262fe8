"""What a cluster has in ZooKeeper can be listed, and what nobody will remove any more is named."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from polling import wait_until

from tailrace.services.election.paths import Paths
from tailrace.services.election.settings import ZooKeeperSettings
from tailrace.services.election.zookeeper_nodes import (
    Orphan,
    ZooKeeperUnreachable,
    inventory,
    orphans,
    remove,
)

from ...fault_injection.network_link import NetworkLink
from .masters import Master, onlooker, tree

pytestmark = pytest.mark.integration

Make = Callable[[ZooKeeperSettings], Master]
JOB, ENDED, UNKNOWN = "aa11", "bb22", "cc33_lock"


def test_who_leads_who_waits_and_what_is_left_over(settings: ZooKeeperSettings, masters: Make) -> None:
    one, other = masters(settings), masters(settings)
    neighbour = masters(msgspec.structs.replace(settings, cluster_path=settings.cluster_path + "0"))
    neighbour.join("job_master/dd44")
    neighbour.leads("job_master/dd44")
    for role in ("dispatcher", f"job_master/{JOB}", f"job_master/{ENDED}"):
        one.join(role)
        one.leads(role)
    other.join("dispatcher")
    paths = Paths.from_settings(settings)
    with onlooker(settings) as kazoo:
        kazoo.ensure_path(paths.leader(f"job_master/{UNKNOWN}"))
        kazoo.ensure_path(paths.latch(f"job_master/{UNKNOWN}"))
        wait_until(lambda: len(tree(kazoo, paths.latch("dispatcher"))) == 2)
        wait_until(lambda: kazoo.exists(paths.leader(f"job_master/{ENDED}")))
    found = inventory(settings)
    assert [each.role for each in found] == [
        "dispatcher",
        f"job_master/{JOB}",
        f"job_master/{ENDED}",
        f"job_master/{UNKNOWN}",
    ]
    dispatcher = found[0]
    assert [contender.address for contender in dispatcher.contenders] == ["host:1", "host:2"]
    assert dispatcher.contenders[0].session != dispatcher.contenders[1].session
    assert dispatcher.leader is not None
    assert dispatcher.leader.address == "host:1"
    left = orphans(found, {JOB: False, ENDED: True})
    assert left == [
        Orphan(paths.of_job(f"job_master/{ENDED}")[0], "job bb22 has ended"),
        Orphan(paths.of_job(f"job_master/{ENDED}")[1], "job bb22 has ended"),
        Orphan(paths.of_job(f"job_master/{UNKNOWN}")[0], "the log knows no job cc33_lock"),
        Orphan(paths.of_job(f"job_master/{UNKNOWN}")[1], "the log knows no job cc33_lock"),
    ]
    one.leave(f"job_master/{ENDED}", for_ever=True)
    remove(settings, left)
    assert [each.role for each in inventory(settings)] == ["dispatcher", f"job_master/{JOB}"]
    assert neighbour.believes("job_master/dd44")


def test_a_cluster_that_never_was_has_nothing(settings: ZooKeeperSettings) -> None:
    assert inventory(settings) == ()


def test_a_zookeeper_that_does_not_answer_is_named() -> None:
    with NetworkLink("127.0.0.1:1") as link:
        link.sever()
        settings = ZooKeeperSettings(
            quorum=link.address, cluster_path="/tailrace/c", connection_timeout_s=0.2
        )
        with pytest.raises(ZooKeeperUnreachable, match=link.address) as error:
            inventory(settings, timeout_s=0.3)
    assert "\n" not in str(error.value)
