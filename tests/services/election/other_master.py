"""A process that is a candidate until its standard input ends, and prints its grants. For tests."""

from __future__ import annotations

import json
import sys
import threading
import time

import msgspec
import structlog

from tailrace.services.election.kubernetes_leader_election import KubernetesLeaderElection
from tailrace.services.election.kubernetes_settings import KubernetesElectionSettings
from tailrace.services.election.leader_election import LeaderElection
from tailrace.services.election.leader_information import LeaderInformation
from tailrace.services.election.lease import uptime
from tailrace.services.election.settings import ZooKeeperSettings
from tailrace.services.election.zookeeper_leader_election import ZooKeeperLeaderElection


def wait_for_the_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def main() -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    address = sys.argv[1]
    me = LeaderInformation(address, f"session of {address}")
    line = sys.stdin.readline()
    mandates: LeaderElection
    if sys.argv[2] == KubernetesElectionSettings.__name__:
        mandates = KubernetesLeaderElection(msgspec.json.decode(line, type=KubernetesElectionSettings), me)
    else:
        settings = msgspec.json.decode(line, type=ZooKeeperSettings)
        mandates = ZooKeeperLeaderElection(settings, me, ["dispatcher"])
    mandates.join()
    ended = threading.Event()
    threading.Thread(target=wait_for_the_end, args=(ended,), daemon=True).start()
    last: tuple[int | None, bool] | None = None
    while not ended.is_set():
        grant = mandates.grant
        seen = (None if grant is None else grant.epoch, mandates.is_suspended)
        if seen != last:
            last = seen
            print(json.dumps({"time": uptime(), "epoch": seen[0], "is_suspended": seen[1]}), flush=True)
            if seen[0] is not None and not seen[1]:
                mandates.confirm_leadership(seen[0])
        time.sleep(0.002)
    mandates.close()


if __name__ == "__main__":
    main()
