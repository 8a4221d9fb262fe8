"""The law of the election, under network faults in a random order by seed, whoever elects.

At each moment at most one candidate may decide, and it is the one whom the service has as the leader; epochs strictly
increase. When the network is healed, one candidate leads.
"""

from __future__ import annotations

import os
import random
import threading

import pytest
from polling import wait_until

from .electorates import Electorate, KubernetesElectorate
from .masters import Candidacy

pytestmark = pytest.mark.integration

CANDIDATES = 3
SEEDS = int(os.environ.get("EXAMPLES", "1"))


class Watcher:
    """Polls all candidates as often as possible. If a candidate is seen to decide before and after another
    observation, it also decides in between: an ended term does not resume."""

    def __init__(self, masters: list[Candidacy], electorate: Electorate) -> None:
        self._masters = masters
        self._electorate = electorate
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
            first = self._electorate.epoch()
            if believed(one) != epoch:
                continue
            both = {address: other for address, other in others.items() if other is not None}
            if both:
                self.faults.append(f"{one.address} of epoch {epoch} and {both} at once")
            if first != epoch:
                self.faults.append(f"{one.address} believes in epoch {epoch}, the service has {first}")
            if not self.epochs or self.epochs[-1] != epoch:
                if self.epochs and self.epochs[-1] > epoch:
                    self.faults.append(f"epoch {epoch} after {self.epochs[-1]}")
                self.epochs.append(epoch)


def believed(master: Candidacy) -> int | None:
    """Returns the epoch under which it may decide now."""
    epoch = master.granted
    return None if master.is_suspended else epoch


@pytest.mark.parametrize("seed", range(SEEDS))
def test_at_most_one_candidate_decides_and_epochs_increase(seed: int, electorate: Electorate) -> None:
    chance = random.Random(seed)
    # A Lease holds whole seconds, and a request must fit into a sixth of them.
    term_s, steps = (3.0, 8) if isinstance(electorate, KubernetesElectorate) else (1.0, 25)
    links = [electorate.link() for _ in range(CANDIDATES)]
    standing = [electorate.master(term_s=term_s, link=link) for link in links]
    for master in standing:
        master.join()
    watcher = Watcher(standing, electorate)
    pause = threading.Event()
    try:
        for _ in range(steps):
            index = chance.randrange(CANDIDATES)
            link, master = links[index], standing[index]
            match chance.choice(["cut", "cut one way", "sever", "reset", "heal", "heal", "withdraw", "die"]):
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
                    links[index] = fresh = electorate.link()
                    links.append(link)
                    standing[index] = electorate.master(term_s=term_s, link=fresh)
                    standing[index].join()
                    standing.append(master)
                case _:
                    for network_link in links[:CANDIDATES]:
                        network_link.heal()
            # How long things last is a part of what is drawn; nothing is expected of it.
            pause.wait(chance.choice([0.02, 0.2, 0.5, term_s * 1.3]))
        for link in links:
            link.heal()
        wait_until(lambda: watcher.faults or any(believed(master) for master in standing))
    finally:
        watcher.end()
        for master in standing:
            master.close()
        for link in links:
            link.close()
    assert watcher.faults == [], f"seed {seed}"
    assert watcher.epochs, "nothing happened at all"
    assert watcher.epochs == sorted(set(watcher.epochs))
