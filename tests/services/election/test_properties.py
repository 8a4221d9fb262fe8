"""The law of the election, under network faults in a random order by seed.

At each moment at most one candidate may decide, and it is the one whose node is first in ZooKeeper; epochs strictly
increase. When the network is healed, one candidate leads.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable

import msgspec
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from polling import wait_until

from tailrace.infra.zookeeper import EmbeddedZooKeeper
from tailrace.services.election.paths import Paths, in_order
from tailrace.services.election.settings import ZooKeeperSettings

from ...fault_injection.network_link import NetworkLink
from .masters import Master, onlooker

pytestmark = pytest.mark.integration

SESSION_S = 1.0
CONTENDERS = 3
STEPS = 25
SEEDS = int(os.environ.get("EXAMPLES", "2"))


class Watcher:
    """Polls all candidates as often as possible. If a candidate is seen to decide before and after another
    observation, it also decides in between: an ended term does not resume."""

    def __init__(self, masters: list[Master], kazoo: KazooClient, latch: str) -> None:
        self._masters = masters
        self._kazoo = kazoo
        self._latch = latch
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.epochs: list[int] = []
        self.faults: list[str] = []
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set() and not self.faults:
            self._look()

    def _look(self) -> None:
        for one in list(self._masters):
            epoch = believed(one)
            if epoch is None:
                continue
            others = {other.address: believed(other) for other in list(self._masters) if other is not one}
            first = self._first()
            if believed(one) != epoch:
                continue
            both = {address: other for address, other in others.items() if other is not None}
            if both:
                self.faults.append(f"{one.address} of epoch {epoch} and {both} at once")
            if first != epoch:
                self.faults.append(f"{one.address} believes in epoch {epoch}, ZooKeeper has {first}")
            if not self.epochs or self.epochs[-1] != epoch:
                if self.epochs and self.epochs[-1] > epoch:
                    self.faults.append(f"epoch {epoch} after {self.epochs[-1]}")
                self.epochs.append(epoch)

    def _first(self) -> int | None:
        try:
            for node in in_order(self._kazoo.get_children(self._latch)):
                stat = self._kazoo.exists(f"{self._latch}/{node}")
                if stat is not None:
                    return int(stat.czxid)
        except NoNodeError:
            pass
        return None


def believed(master: Master) -> int | None:
    """Returns the epoch under which it may decide now."""
    epoch = master.granted
    return None if master.is_suspended else epoch


@pytest.mark.parametrize("seed", range(SEEDS))
def test_at_most_one_candidate_decides_and_epochs_increase(
    seed: int,
    zookeeper: EmbeddedZooKeeper,
    settings: ZooKeeperSettings,
    masters: Callable[[ZooKeeperSettings], Master],
) -> None:
    chance = random.Random(seed)
    links = [NetworkLink(zookeeper.connect_string) for _ in range(CONTENDERS)]
    standing = [masters(beyond(settings, link)) for link in links]
    with onlooker(settings) as kazoo:
        for master in standing:
            master.join()
        watcher = Watcher(standing, kazoo, Paths.from_settings(settings).latch)
        pause = threading.Event()
        try:
            for _ in range(STEPS):
                index = chance.randrange(CONTENDERS)
                link, master = links[index], standing[index]
                match chance.choice(
                    ["cut", "cut one way", "sever", "reset", "heal", "heal", "withdraw", "die"]
                ):
                    case "cut":
                        link.cut()
                    case "cut one way":
                        link.cut(requests=chance.random() < 0.5)
                    case "sever":
                        link.sever()
                    case "reset":
                        link.reset()
                    case "withdraw":
                        master.rejoin()
                    case "die":
                        link.sever()
                        links[index] = fresh = NetworkLink(zookeeper.connect_string)
                        links.append(link)
                        standing[index] = masters(beyond(settings, fresh))
                        standing[index].join()
                        standing.append(master)
                    case _:
                        for network_link in links[:CONTENDERS]:
                            network_link.heal()
                # How long things last is a part of what is drawn; nothing is expected of it.
                pause.wait(chance.choice([0.02, 0.2, 0.5, SESSION_S * 1.3]))
            for link in links:
                link.heal()
            wait_until(lambda: watcher.faults or any(believed(master) for master in standing))
        finally:
            watcher.end()
            for link in links:
                link.close()
        assert watcher.faults == [], f"seed {seed}"
        assert len(watcher.epochs) > 1, "nothing happened at all"
        assert watcher.epochs == sorted(set(watcher.epochs))


def beyond(settings: ZooKeeperSettings, link: NetworkLink) -> ZooKeeperSettings:
    return msgspec.structs.replace(
        settings, quorum=link.address, session_timeout_s=SESSION_S, connection_timeout_s=0.5
    )
