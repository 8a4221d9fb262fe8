"""Faults of elections: they are suspended, grants are lost, kept after their end, and given to others, at any time."""

from __future__ import annotations

import random

from ..async_simulator import AsyncSimulator
from .masters import Master, StandbyWorld

MASTER_FAULT_ACTIONS = {
    "suspend_election": 1.5,
    "resume_election": 2.0,
    "expire_session": 1.5,
    "reconnect": 2.0,
    "grant_wrongly": 2.0,
    "lose_node": 2.0,
    "old_leader": 4.0,
    "replace_deaf_masters": 4.0,
    "restore_masters": 2.0,
    "kill_standby": 0.5,
    "end_dead_sessions": 2.0,
}
"""As FAULT_ACTIONS."""
_MOST = 4


class MastersChaos:
    """Steps of Chaos with standby masters."""

    draw: random.Random
    world: AsyncSimulator

    def start_master(self) -> None:
        """Starts another master."""
        if not isinstance(self.world, StandbyWorld) or len(self.world.masters) < _MOST:
            self.world.start_master()

    def suspend_election(self) -> None:
        if (master := self._master()) is not None:
            master.candidate.is_suspended = True

    def resume_election(self) -> None:
        if (master := self._master()) is not None:
            master.candidate.is_suspended = False

    def expire_session(self) -> None:
        """Others are elected; the former leader does not detect it."""
        if (master := self._master()) is not None:
            master.candidate.expire()

    def reconnect(self) -> None:
        if (master := self._master()) is not None:
            master.candidate.reconnect()

    def grant_wrongly(self) -> None:
        """Grants leadership to two masters."""
        if (master := self._master()) is not None:
            self._world.election.grant_wrongly(master.candidate)

    def lose_node(self) -> None:
        """The leader becomes the last candidate, in the same session."""
        if (master := self._master()) is not None and master.candidate.grant is not None:
            master.candidate.recreate_node()

    def old_leader(self) -> None:
        """A leader pauses for longer than its session timeout; others are elected and send events. Then it continues,
        and sends its own."""
        leaders = [master for master in self._world.masters if master.core.is_leading]
        if not leaders:
            return
        old = self.draw.choice(leaders)
        if self.draw.random() < 0.7:
            old.fold()
        old.stalled = True
        if self.draw.random() < 0.8:
            old.candidate.expire()
        else:
            # Its session continues, without a grant.
            old.candidate.recreate_node()
        for _ in range(self.draw.randint(1, 3)):
            self.world.turn()
        old.stalled = False
        old.decide()
        old.append_pending(self.draw.choice((1, 2, None)))

    def replace_deaf_masters(self) -> None:
        """Masters that read nothing are no candidates; another one decides while they still send."""
        for master in self._world.masters:
            if master.reads_nothing:
                master.candidate.withdraw()
        if any(not master.reads_nothing for master in self._world.masters):
            self._world.turn()

    def restore_masters(self) -> None:
        for master in self._world.masters:
            if not master.reads_nothing:
                master.candidate.restore()

    def kill_standby(self) -> None:
        """SIGKILL of any master."""
        if (master := self._master()) is not None:
            master.end()

    def end_dead_sessions(self) -> None:
        """The sessions of dead masters expire."""
        self._world.election.heal()

    @property
    def _world(self) -> StandbyWorld:
        assert isinstance(self.world, StandbyWorld)
        return self.world

    def _master(self) -> Master | None:
        masters = self._world.masters
        return self.draw.choice(masters) if masters else None
