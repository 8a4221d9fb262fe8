"""An election whose grants the test controls."""

from __future__ import annotations

from tailrace.services.election.leader_election import Grant


class ScriptedElection:
    """The LeaderElection of one process. `joined` counts how often it has become a candidate."""

    elected_by = "zookeeper"

    def __init__(self) -> None:
        self.is_suspended = False
        self.joined = 0
        self.confirmed: int | None = None
        self.grant: Grant | None = None

    def give(self, epoch: int) -> None:
        """Grants leadership, whether the process is a candidate or not."""
        self.grant = Grant(epoch)

    def take(self) -> None:
        """Revokes the grant."""
        self.grant = None

    def join(self) -> None:
        self.joined += 1

    def rejoin(self) -> None:
        self.take()
        self.join()

    def confirm_leadership(self, epoch: int) -> None:
        self.confirmed = epoch

    def close(self) -> None:
        self.take()
