"""Random faults of masters; all of them can be healed."""

from __future__ import annotations

import random
from collections.abc import Callable

from .cluster import HaCluster
from .masters import Master


def inject_random_fault(cluster: HaCluster, draw: random.Random) -> tuple[str, Callable[[], None]]:
    """Injects a fault; returns its description and the function that heals it (HaCluster.restore_all heals the
    rest)."""
    # The leader is hit more often than anybody else.
    leader = [
        master
        for master in cluster.masters.all
        if master.is_running() and master.address == cluster.reign.address
    ]
    master = draw.choice([*leader, *cluster.masters.all])
    what = draw.choice(_FAULTS)
    undo = what(cluster, master, draw)
    return f"{what.__name__.strip('_')} {master.name}", undo


def _kill(_cluster: HaCluster, master: Master, _draw: random.Random) -> Callable[[], None]:
    master.kill()
    return master.start


def _kill_all(cluster: HaCluster, _master: Master, _draw: random.Random) -> Callable[[], None]:
    for master in cluster.masters.all:
        master.kill()
    return cluster.masters.start


def _stop(_cluster: HaCluster, master: Master, _draw: random.Random) -> Callable[[], None]:
    if master.is_running():
        master.pause()
    return master.resume


def _take_zookeeper(_cluster: HaCluster, master: Master, draw: random.Random) -> Callable[[], None]:
    requests, answers = draw.choice([(True, True), (True, False), (False, True)])
    for link in master.network.zookeeper:
        link.sever() if draw.random() < 0.2 else link.cut(requests=requests, answers=answers)
    return master.network.heal


def _take_kafka(_cluster: HaCluster, master: Master, draw: random.Random) -> Callable[[], None]:
    requests, answers = draw.choice([(True, True), (True, False), (False, True)])
    link = master.network.kafka
    link.sever() if draw.random() < 0.3 else link.cut(requests=requests, answers=answers)
    return master.network.heal


def _isolate(_cluster: HaCluster, master: Master, _draw: random.Random) -> Callable[[], None]:
    master.network.cut_zookeeper()
    master.network.kafka.cut()
    return master.network.heal


def _interrupt(_cluster: HaCluster, master: Master, _draw: random.Random) -> Callable[[], None]:
    for link in (master.network.kafka, *master.network.zookeeper):
        link.reset()
    return master.network.heal


def _revoke(cluster: HaCluster, _master: Master, draw: random.Random) -> Callable[[], None]:
    cluster.revoke()
    return lambda: None


def _kill_a_server(cluster: HaCluster, _master: Master, draw: random.Random) -> Callable[[], None]:
    server = draw.choice(cluster.zookeeper.servers)
    server.kill()
    return lambda: None if server.is_running() else server.launch()


def _stop_a_server(cluster: HaCluster, _master: Master, draw: random.Random) -> Callable[[], None]:
    server = draw.choice([server for server in cluster.zookeeper.servers if server.is_running()])
    server.pause()
    return server.resume


_FAULTS = (
    _kill,
    _kill,
    _kill_all,
    _stop,
    _stop,
    _take_zookeeper,
    _take_kafka,
    _isolate,
    _interrupt,
    _revoke,
    _kill_a_server,
    _stop_a_server,
)
