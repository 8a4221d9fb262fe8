"""Trouble with elections: mandates are suspended, lost, taken for held, and given out of turn, at any moment."""

from __future__ import annotations

import random

from ..async_simulator import AsyncSimulator
from .masters import Master, StandbyWorld

MASTER_FAULT_ACTIONS = {
    "suspend_mandates": 1.5,
    "resume_mandates": 2.0,
    "expire_session": 1.5,
    "notice_expiry": 2.0,
    "mislead": 2.0,
    "lose_node": 2.0,
    "old_leader": 4.0,
    "kill_standby": 0.5,
    "end_dead_sessions": 2.0,
}
"""As TROUBLE."""
_MOST = 4


class MastersChaos:
    """Steps of Chaos, in a world in which masters stand by."""

    draw: random.Random
    world: AsyncSimulator

    def start_master(self) -> None:
        """Another one, or another standby."""
        if not isinstance(self.world, StandbyWorld) or len(self.world.masters) < _MOST:
            self.world.start_master()

    def suspend_mandates(self) -> None:
        if (master := self._master()) is not None:
            master.mandates.suspended = True

    def resume_mandates(self) -> None:
        if (master := self._master()) is not None:
            master.mandates.suspended = False

    def expire_session(self) -> None:
        """Others are elected; the one who was goes on as if nothing had happened."""
        if (master := self._master()) is not None:
            master.mandates.expire()

    def notice_expiry(self) -> None:
        if (master := self._master()) is not None:
            master.mandates.notice()

    def mislead(self) -> None:
        """Two have a mandate for the same at once."""
        if (master := self._master()) is not None:
            jobs = [each for each in self.world.truth.active_addresses if each.startswith("job_master")]
            kind = self.draw.choice((jobs, jobs, ["dispatcher"], ["resource_manager"]))
            self._world.election.mislead(self.draw.choice(kind or ["dispatcher"]), master.mandates)

    def lose_node(self) -> None:
        """Of one role only: the roles of a master come to be led by several."""
        if (master := self._master()) is not None and (granted := sorted(master.mandates.grants())):
            master.mandates.lose(self.draw.choice(granted))

    def old_leader(self) -> None:
        """A leader pauses for longer than its session lasts; others are elected, and say something. Then it goes on
        with what it was about to say."""
        leaders = [each for each in self._world.masters if each.core.leads_any]
        if not leaders:
            return
        old = self.draw.choice(leaders)
        if self.draw.random() < 0.7:
            old.fold()
        old.stalled = True
        if self.draw.random() < 0.8:
            old.mandates.expire()
        else:
            # Its session goes on, and it is given no mandate.
            for role in sorted(old.mandates.grants()):
                self._world.election.leave(role, old.mandates)
                self._world.election.stand(role, old.mandates)
        for _ in range(self.draw.randint(1, 3)):
            self.world.turn()
        old.stalled = False
        old.decide()
        old.speak(self.draw.choice((1, 2, None)))

    def kill_standby(self) -> None:
        """SIGKILL of any."""
        if (master := self._master()) is not None:
            master.end()

    def end_dead_sessions(self) -> None:
        """Whoever has died is known to have."""
        self._world.election.heal()

    @property
    def _world(self) -> StandbyWorld:
        assert isinstance(self.world, StandbyWorld)
        return self.world

    def _master(self) -> Master | None:
        masters = self._world.masters
        return self.draw.choice(masters) if masters else None
