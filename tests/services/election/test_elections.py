"""Several masters join elections in one ZooKeeper: the first is elected, and the next one when it leaves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl
from polling import wait_until

from tailrace.infra.zookeeper import EmbeddedZooKeeper
from tailrace.services.configuration.options.zookeeper import ZooKeeperAcl
from tailrace.services.election.client import Client
from tailrace.services.election.latch import Latch
from tailrace.services.election.leader_information import LeaderInformation, decode
from tailrace.services.election.paths import Paths, in_order
from tailrace.services.election.settings import Secret, ZooKeeperSettings

from .masters import ROLE, ROLES, Master, logged, onlooker, tree

pytestmark = pytest.mark.integration

Make = Callable[[ZooKeeperSettings], Master]


def has(kazoo: KazooClient, path: str, count: int) -> bool:
    return len(tree(kazoo, path)) == count


def enter(settings: ZooKeeperSettings, *masters: Master) -> None:
    """Lets the masters join the election, one after the other."""
    with onlooker(settings) as kazoo:
        for count, master in enumerate(masters, start=1):
            master.join()
            wait_until(partial(has, kazoo, Paths.from_settings(settings).latch, count))


def test_epoch_is_creation_zxid_of_node_above_base(settings: ZooKeeperSettings, masters: Make) -> None:
    epoch = masters(settings)
    epoch.join()
    raised = msgspec.structs.replace(
        settings, cluster_path=settings.cluster_path + "-raised", base_epoch=1 << 40
    )
    higher = masters(raised)
    higher.join()
    with onlooker(settings) as kazoo:
        for master, where, base in ((epoch, settings, 0), (higher, raised, 1 << 40)):
            report = master.epoch()
            (node,) = tree(kazoo, Paths.from_settings(where).latch)
            assert report == kazoo.exists(node).czxid + base


def test_leader_is_published_for_all_roles_when_confirmed_and_removed_when_it_leaves(
    settings: ZooKeeperSettings, masters: Make
) -> None:
    one, other = masters(settings), masters(settings)
    enter(settings, one, other)
    paths = Paths.from_settings(settings)
    path = paths.leader(ROLE)
    with onlooker(settings) as kazoo:
        epoch = one.epoch()
        assert kazoo.exists(path) is None
        other.confirm_leadership(1)
        one.confirm_leadership(epoch)
        wait_until(lambda: kazoo.exists(path))
        content, stat = kazoo.get(path)
        assert decode(content) == LeaderInformation("host:1", "session of host:1", epoch, {"blob": "h:1"})
        assert stat.ephemeralOwner != 0
        for role in ROLES:
            other_content, other_stat = kazoo.get(paths.leader(role))
            assert (other_content, other_stat.czxid) == (content, stat.czxid), "one transaction publishes all"
        one.rejoin()
        wait_until(lambda: kazoo.exists(path) is None)
        epoch = other.leads()
        wait_until(lambda: kazoo.exists(path))
        assert decode(kazoo.get(path)[0]) == LeaderInformation(
            "host:2", "session of host:2", epoch, {"blob": "h:1"}
        )


def test_leader_publishes_itself_again_if_its_node_is_removed_or_replaced(
    settings: ZooKeeperSettings, masters: Make
) -> None:
    master = masters(settings)
    master.join()
    epoch = master.leads()
    path = Paths.from_settings(settings).leader(ROLE)
    with onlooker(settings) as kazoo:

        def published() -> bool:
            result = kazoo.exists(path) and decode(kazoo.get(path)[0])
            return result is not None and result.epoch == epoch

        wait_until(published)
        kazoo.delete(path)
        wait_until(published)
        kazoo.set(path, b'{"address":"host:9","session_id":"an intruder\'s","epoch":9}')
        wait_until(published)
        assert master.epoch() == epoch


def test_leader_that_loses_its_node_steps_down_and_joins_again_last(
    settings: ZooKeeperSettings, masters: Make
) -> None:
    one, other = masters(settings), masters(settings)
    enter(settings, one, other)
    first = one.leads()
    latch = Paths.from_settings(settings).latch
    with onlooker(settings) as kazoo:
        kazoo.delete(f"{latch}/{in_order(kazoo.get_children(latch))[0]}")
        second = other.leads()
        wait_until(lambda: len(kazoo.get_children(latch)) == 2)
        wait_until(lambda: not one.granted)
        kazoo.delete(f"{latch}/{in_order(kazoo.get_children(latch))[0]}")
        assert first < second < one.epoch()


def test_waiting_candidate_that_loses_its_node_is_still_elected(
    settings: ZooKeeperSettings, masters: Make
) -> None:
    standing = [masters(settings) for _ in range(3)]
    enter(settings, *standing)
    latch = Paths.from_settings(settings).latch
    with onlooker(settings) as kazoo:
        kazoo.delete(f"{latch}/{in_order(kazoo.get_children(latch))[1]}")
        standing[0].close()
        standing[2].epoch()
        wait_until(lambda: len(kazoo.get_children(latch)) == 2)
    standing[2].close()
    standing[1].epoch()


def test_end_of_candidate_wakes_only_the_next_one(
    settings: ZooKeeperSettings, masters: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    standing = [masters(settings) for _ in range(5)]
    enter(settings, *standing)
    standing[0].leads()
    with onlooker(settings) as kazoo:
        # To publish itself it pursues its latch once more.
        wait_until(lambda: kazoo.exists(Paths.from_settings(settings).leader(ROLE)))
    woken: list[Latch] = []
    pursue = Latch.acquire

    def counted(latch: Latch) -> int | None:
        woken.append(latch)
        return pursue(latch)

    monkeypatch.setattr(Latch, "acquire", counted)
    standing[0].close()
    standing[1].epoch()
    standing[2].close()
    wait_until(lambda: len(set(woken)) == 2)
    assert not standing[3].granted
    assert len({id(latch) for latch in woken}) == 2


def test_lost_answer_to_create_leaves_no_orphaned_candidate(
    settings: ZooKeeperSettings, masters: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[str] = []
    create = Client.create_async

    def loses_the_answer(self: Client, path: str, *args: object, **more: object) -> object:
        asked = create(self, path, *args, **more)
        if "-latch-" in path and len(lost) < 2:
            lost.append(asked.get())
            asked = self.handler.async_result()
            asked.set_exception(ConnectionLoss())
        return asked

    with onlooker(settings) as kazoo:
        kazoo.ensure_path(Paths.from_settings(settings).latch)
        monkeypatch.setattr(Client, "create_async", loses_the_answer)
        one, other = masters(settings), masters(settings)
        one.join()
        other.join()
        wait_until(lambda: one.granted or other.granted)
        wait_until(lambda: len(lost) == 2)
        latch = Paths.from_settings(settings).latch
        wait_until(lambda: {f"{latch}/{node}" for node in kazoo.get_children(latch)} == set(lost))
        leader, standby = (one, other) if one.granted else (other, one)
        leader.close()
        standby.epoch()


def test_password_and_creator_acl_protect_nodes_from_others(
    settings: ZooKeeperSettings, masters: Make
) -> None:
    ours = msgspec.structs.replace(settings, acl=ZooKeeperAcl.CREATOR, digest=Secret("tailrace:swordfish"))
    one, other = masters(ours), masters(ours)
    enter_as = {"auth_data": {("digest", "tailrace:swordfish")}}
    one.join()
    one.leads()
    other.join()
    paths = Paths.from_settings(settings)
    with onlooker(settings, **enter_as) as friend, onlooker(settings) as stranger:
        wait_until(lambda: friend.exists(paths.leader(ROLE)))
        for path in (settings.cluster_path, *tree(friend, settings.cluster_path)):
            acls, _ = friend.get_acls(path)
            assert acls == [make_digest_acl("tailrace", "swordfish", all=True)]
            with pytest.raises(NoAuthError):
                stranger.get(path)
        with pytest.raises(NoAuthError):
            stranger.create(f"{paths.latch}/00-latch-", sequence=True)
        one.close()
        assert other.epoch() > 0


def test_master_without_password_logs_it_and_is_elected_when_access_is_granted(
    settings: ZooKeeperSettings, masters: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    guarded = {"auth_data": {("digest", "tailrace:swordfish")}}
    with onlooker(settings, **guarded) as owner:
        owner.create(
            settings.cluster_path, makepath=True, acl=[make_digest_acl("tailrace", "swordfish", all=True)]
        )
        master = masters(settings)
        master.join()
        report = ""

        def has_logged() -> bool:
            nonlocal report
            report += logged(capsys)
            return "ZooKeeper rejects a required request" in report

        wait_until(has_logged)
        assert "NoAuthError" in report
        assert not master.granted
        owner.set_acls(settings.cluster_path, OPEN_ACL_UNSAFE)
        master.epoch()


def test_embedded_servers_grant_requested_session_timeout_within_bounds(
    zookeeper: EmbeddedZooKeeper, settings: ZooKeeperSettings, masters: Make
) -> None:
    zoo_keeper_settings = msgspec.structs.replace(settings, session_timeout_s=1.0)
    master = masters(zoo_keeper_settings)
    master.join()
    master.epoch()
    assert master._session.timeout_s == 1.0
