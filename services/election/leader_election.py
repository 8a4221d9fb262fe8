"""The right of a process to lead, as the host sees it.

An election grants leadership to one process at a time, for all roles that the process is a candidate for. The host
claims the roles in the log, and leads once it has read its claims back unfenced. A wrong grant, or one whose end is
noticed late, does no harm: the log decides.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Grant(NamedTuple):
    """A term of leadership. `epoch` is the epoch to claim; None: the last epoch in the log plus one."""

    epoch: int | None = None


class LeaderElection(Protocol):
    """The election of one process. All methods except `close` return at once. Thread-safe."""

    @property
    def elected_by(self) -> str:
        """The service that grants leadership, as LeaderElected records it; empty: none."""
        ...

    @property
    def is_suspended(self) -> bool:
        """Whether it is currently unknown who should lead: decide nothing, keep all state."""
        ...

    @property
    def grant(self) -> Grant | None:
        """The term in which this process should lead; None if it should not."""
        ...

    def join(self) -> None:
        """Becomes a candidate; idempotent."""
        ...

    def rejoin(self) -> None:
        """Returns the grant, and becomes the last of all candidates. The returned grant never appears again."""
        ...

    def confirm_leadership(self, epoch: int) -> None:
        """Confirms that the log accepted the claims: this process leads under this epoch and may be published as the
        leader. Has no effect without a grant; idempotent."""
        ...

    def close(self) -> None:
        """Returns the grant, so that another process may be elected at once. May take seconds."""
        ...


class StandaloneLeaderElection:
    """`high-availability.type: none`: every process that joins is granted leadership."""

    elected_by = ""
    is_suspended = False

    def __init__(self) -> None:
        self._grant: Grant | None = None

    @property
    def grant(self) -> Grant | None:
        return self._grant

    def join(self) -> None:
        self._grant = Grant()

    def rejoin(self) -> None:
        pass

    def confirm_leadership(self, epoch: int) -> None:
        pass

    def close(self) -> None:
        self._grant = None
