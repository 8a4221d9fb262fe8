"""Several masters stand for roles in one ZooKeeper: one of them is elected, and the next when it goes."""

from __future__ import annotations

import random
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

from .masters import ROLE, Master, logged, onlooker, tree

pytestmark = pytest.mark.integration

Make = Callable[[ZooKeeperSettings], Master]
JOB = "job_master/0af1"


def has(kazoo: KazooClient, path: str, count: int) -> bool:
    return len(tree(kazoo, path)) == count


def enter(settings: ZooKeeperSettings, *masters: Master, role: str = ROLE) -> None:
    """The masters stand for a role, one after the other."""
    with onlooker(settings) as kazoo:
        for count, master in enumerate(masters, start=1):
            master.join(role)
            wait_until(partial(has, kazoo, Paths.from_settings(settings).latch(role), count))


def test_the_first_is_elected_and_the_next_in_turn_when_it_goes(
    settings: ZooKeeperSettings, masters: Make
) -> None:
    standing = [masters(settings) for _ in range(4)]
    enter(settings, *standing)
    epochs = []
    while standing:
        leader = standing.pop(0)
        epochs.append(leader.epoch())
        assert leader.believes()
        assert not any(master.grants() for master in standing)
        leader.close()
        assert not leader.grants()
        assert leader.suspended
    assert epochs == sorted(set(epochs))


def test_the_epoch_is_the_creation_zxid_of_the_node_above_the_base(
    settings: ZooKeeperSettings, masters: Make
) -> None:
    epoch = masters(settings)
    epoch.join(ROLE)
    raised = msgspec.structs.replace(
        settings, cluster_path=settings.cluster_path + "-raised", base_epoch=1 << 40
    )
    higher = masters(raised)
    higher.join(ROLE)
    with onlooker(settings) as kazoo:
        for master, where, base in ((epoch, settings, 0), (higher, raised, 1 << 40)):
            told = master.epoch()
            (node,) = tree(kazoo, Paths.from_settings(where).latch(ROLE))
            assert told == kazoo.exists(node).czxid + base


def test_each_role_is_led_by_itself(settings: ZooKeeperSettings, masters: Make) -> None:
    one, other = masters(settings), masters(settings)
    enter(settings, one, other, role="dispatcher")
    enter(settings, other, one, role="resource_manager")
    enter(settings, other, one, role=JOB)
    assert one.epoch("dispatcher") < other.epoch("resource_manager") < other.epoch(JOB)
    assert set(one.grants()) == {"dispatcher"}
    assert set(other.grants()) == {"resource_manager", JOB}


def test_what_is_granted_is_the_same_object_until_it_changes(
    settings: ZooKeeperSettings, masters: Make
) -> None:
    master = masters(settings)
    master.join(ROLE)
    master.epoch()
    before = master.grants()
    master.join(ROLE)
    master.confirm_leadership(ROLE, 3)
    assert master.grants() is before
    master.join("rest_server")
    master.epoch("rest_server")
    assert master.grants() is not before
    assert master.grants().items() > before.items()


def test_who_withdraws_is_followed_and_may_stand_anew(settings: ZooKeeperSettings, masters: Make) -> None:
    one, other = masters(settings), masters(settings)
    enter(settings, one, other)
    first = one.epoch()
    one.leave(ROLE)
    assert ROLE not in one.grants()
    one.join(ROLE)
    second = other.epoch()
    other.leave(ROLE)
    third = one.epoch()
    assert first < second < third


def test_a_leader_is_published_once_it_is_confirmed_and_no_more_when_it_goes(
    settings: ZooKeeperSettings, masters: Make
) -> None:
    one, other = masters(settings), masters(settings)
    enter(settings, one, other)
    path = Paths.from_settings(settings).leader(ROLE)
    with onlooker(settings) as kazoo:
        epoch = one.epoch()
        assert kazoo.exists(path) is None
        other.confirm_leadership(ROLE, 1)
        one.confirm_leadership(ROLE, epoch)
        wait_until(lambda: kazoo.exists(path))
        content, stat = kazoo.get(path)
        assert decode(content) == LeaderInformation("host:1", "session of host:1", epoch, {"blob": "h:1"})
        assert stat.ephemeralOwner != 0
        one.leave(ROLE)
        wait_until(lambda: kazoo.exists(path) is None)
        epoch = other.leads()
        wait_until(lambda: kazoo.exists(path))
        assert decode(kazoo.get(path)[0]) == LeaderInformation(
            "host:2", "session of host:2", epoch, {"blob": "h:1"}
        )


def test_a_leader_whose_publication_is_removed_or_another_s_publishes_itself_again(
    settings: ZooKeeperSettings, masters: Make
) -> None:
    master = masters(settings)
    master.join(ROLE)
    epoch = master.leads()
    path = Paths.from_settings(settings).leader(ROLE)
    with onlooker(settings) as kazoo:

        def published() -> bool:
            found = kazoo.exists(path) and decode(kazoo.get(path)[0])
            return found is not None and found.epoch == epoch

        wait_until(published)
        kazoo.delete(path)
        wait_until(published)
        kazoo.set(path, b'{"address":"host:9","session_id":"an intruder\'s","epoch":9}')
        wait_until(published)
        assert master.epoch() == epoch


def test_who_loses_its_node_steps_down_and_stands_anew_behind_the_others(
    settings: ZooKeeperSettings, masters: Make
) -> None:
    one, other = masters(settings), masters(settings)
    enter(settings, one, other)
    first = one.leads()
    latch = Paths.from_settings(settings).latch(ROLE)
    with onlooker(settings) as kazoo:
        kazoo.delete(f"{latch}/{in_order(kazoo.get_children(latch))[0]}")
        second = other.leads()
        wait_until(lambda: len(kazoo.get_children(latch)) == 2)
        wait_until(lambda: not one.grants())
        kazoo.delete(f"{latch}/{in_order(kazoo.get_children(latch))[0]}")
        assert first < second < one.epoch()


def test_who_waits_and_loses_its_node_is_elected_all_the_same(
    settings: ZooKeeperSettings, masters: Make
) -> None:
    standing = [masters(settings) for _ in range(3)]
    enter(settings, *standing)
    latch = Paths.from_settings(settings).latch(ROLE)
    with onlooker(settings) as kazoo:
        kazoo.delete(f"{latch}/{in_order(kazoo.get_children(latch))[1]}")
        standing[0].close()
        standing[2].epoch()
        wait_until(lambda: len(kazoo.get_children(latch)) == 2)
    standing[2].close()
    standing[1].epoch()


def test_the_end_of_one_wakes_one_other_and_not_all(
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
    assert not standing[3].grants()
    assert len({id(latch) for latch in woken}) == 2


def test_a_job_that_is_over_leaves_nothing(settings: ZooKeeperSettings, masters: Make) -> None:
    standing = [masters(settings) for _ in range(3)]
    enter(settings, *standing, role=JOB)
    standing[0].leads(JOB)
    paths = Paths.from_settings(settings)
    with onlooker(settings) as kazoo:
        wait_until(lambda: kazoo.exists(paths.leader(JOB)))
        for master in random.Random(7).sample(standing, 3):
            master.leave(JOB, for_ever=master is standing[0])
        wait_until(lambda: tree(kazoo, settings.cluster_path) == [paths.leaders, paths.latches])


def test_a_job_that_is_over_before_its_last_leader_was_published_leaves_nothing(
    settings: ZooKeeperSettings, masters: Make
) -> None:
    first, last = masters(settings), masters(settings)
    enter(settings, first, last, role=JOB)
    first.leads(JOB)
    paths = Paths.from_settings(settings)
    with onlooker(settings) as kazoo:
        wait_until(lambda: kazoo.exists(paths.leader(JOB)))
        first.close()
        last.epoch(JOB)
        last.leave(JOB, for_ever=True)
        wait_until(lambda: tree(kazoo, settings.cluster_path) == [paths.leaders, paths.latches])


def test_a_job_that_is_over_leaves_nothing_even_of_masters_that_never_heard_of_it(
    settings: ZooKeeperSettings, masters: Make
) -> None:
    quick = msgspec.structs.replace(settings, session_timeout_s=1.0)
    leader, deaf = masters(quick), masters(settings)
    enter(settings, leader, deaf, role=JOB)
    leader.leads(JOB)
    paths = Paths.from_settings(settings)
    with onlooker(settings) as kazoo:
        wait_until(lambda: kazoo.exists(paths.leader(JOB)))
        leader.leave(JOB, for_ever=True)
        deaf.epoch(JOB)
        deaf.close()
        wait_until(lambda: tree(kazoo, settings.cluster_path) == [paths.leaders, paths.latches])


def test_who_goes_right_after_a_job_is_over_leaves_nothing_of_it(
    settings: ZooKeeperSettings, masters: Make
) -> None:
    leader = masters(settings)
    jobs = [f"job_master/{number:04x}" for number in range(20)]
    for job in jobs:
        leader.join(job)
    for job in jobs:
        leader.leads(job)
    paths = Paths.from_settings(settings)
    with onlooker(settings) as kazoo:
        wait_until(lambda: len(tree(kazoo, paths.leaders)) == 2 * len(jobs))
        for job in jobs:
            leader.leave(job, for_ever=True)
        leader.close()
        assert tree(kazoo, settings.cluster_path) == [paths.leaders, paths.latches]


def test_a_creation_whose_answer_was_lost_leaves_no_contender_that_nobody_pursues(
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
        kazoo.ensure_path(Paths.from_settings(settings).latch(ROLE))
        monkeypatch.setattr(Client, "create_async", loses_the_answer)
        one, other = masters(settings), masters(settings)
        one.join(ROLE)
        other.join(ROLE)
        wait_until(lambda: one.grants() or other.grants())
        wait_until(lambda: len(lost) == 2)
        latch = Paths.from_settings(settings).latch(ROLE)
        wait_until(lambda: {f"{latch}/{node}" for node in kazoo.get_children(latch)} == set(lost))
        leader, standby = (one, other) if one.grants() else (other, one)
        leader.close()
        standby.epoch()


def test_with_a_password_and_creator_nobody_else_touches_the_nodes(
    settings: ZooKeeperSettings, masters: Make
) -> None:
    ours = msgspec.structs.replace(settings, acl=ZooKeeperAcl.CREATOR, digest=Secret("tailrace:swordfish"))
    one, other = masters(ours), masters(ours)
    enter_as = {"auth_data": {("digest", "tailrace:swordfish")}}
    one.join(ROLE)
    one.leads()
    other.join(ROLE)
    paths = Paths.from_settings(settings)
    with onlooker(settings, **enter_as) as friend, onlooker(settings) as stranger:
        wait_until(lambda: friend.exists(paths.leader(ROLE)))
        for path in (settings.cluster_path, *tree(friend, settings.cluster_path)):
            acls, _ = friend.get_acls(path)
            assert acls == [make_digest_acl("tailrace", "swordfish", all=True)]
            with pytest.raises(NoAuthError):
                stranger.get(path)
        with pytest.raises(NoAuthError):
            stranger.create(f"{paths.latch(ROLE)}/00-latch-", sequence=True)
        one.close()
        assert other.epoch() > 0


def test_a_master_without_the_password_is_told_and_elected_once_it_is_let_in(
    settings: ZooKeeperSettings, masters: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    guarded = {"auth_data": {("digest", "tailrace:swordfish")}}
    with onlooker(settings, **guarded) as owner:
        owner.create(
            settings.cluster_path, makepath=True, acl=[make_digest_acl("tailrace", "swordfish", all=True)]
        )
        master = masters(settings)
        master.join(ROLE)
        told = ""

        def is_told() -> bool:
            nonlocal told
            told += logged(capsys)
            return "ZooKeeper refuses what a master has to do" in told

        wait_until(is_told)
        assert "NoAuthError" in told
        assert not master.grants()
        owner.set_acls(settings.cluster_path, OPEN_ACL_UNSAFE)
        master.epoch()


def test_the_embedded_servers_grant_the_session_timeout_that_is_asked_for_within_their_bounds(
    zookeeper: EmbeddedZooKeeper, settings: ZooKeeperSettings, masters: Make
) -> None:
    asked = msgspec.structs.replace(settings, session_timeout_s=1.0)
    master = masters(asked)
    master.join(ROLE)
    master.epoch()
    assert master._session.timeout_s == 1.0
