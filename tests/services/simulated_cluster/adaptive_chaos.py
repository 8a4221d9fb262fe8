"""Slots that come and go, and jobs with the adaptive scheduler, which run with those that there are."""

from __future__ import annotations

import random

from tailrace.pipelines.graph.job_options import ISOLATION, Isolation
from tailrace.schemas import dispatcher

from ..async_simulator import AsyncSimulator
from .cluster import graph
from .jobs import co_located, in_a_line, in_groups, in_single_slots, shared_slots, with_options, with_profile

_KEY = "jobmanager.adaptive-scheduler"
_OPTIONS = {
    "jobmanager.scheduler": "adaptive",
    f"{_KEY}.submission.resource-stabilization-timeout": "2 s",
    f"{_KEY}.executing.resource-stabilization-timeout": "5 s",
    f"{_KEY}.executing.cooldown-after-rescaling": "1 s",
}
_RESTARTS = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100",
    "restart-strategy.fixed-delay.delay": "0 s",
}
_SHAPES = (graph, graph, shared_slots, in_groups, in_single_slots, co_located, with_profile, in_a_line)
_ACTIONS = {"submit": 1.0, "lose": 2.0, "start": 2.0, "wait": 5.0}
"""Weights of the steps."""


def any_adaptive_scheduler(draw: random.Random) -> dict[str, str]:
    """Returns the options of the adaptive scheduler for all jobs."""
    return {**_OPTIONS, "scheduler-mode": draw.choice(("none", "none", "reactive"))}


class AdaptiveChaos:
    """Steps of Chaos."""

    world: AsyncSimulator
    job_ids: list[str]

    def lose(self, resource_id: str, *, exited: bool) -> None:
        raise NotImplementedError

    def change_slots(self, draw: random.Random) -> None:
        """A job is submitted, a TaskExecutor is lost or comes, or time passes."""
        world = self.world
        (kind,) = draw.choices(list(_ACTIONS), list(_ACTIONS.values()))
        match kind:
            case "submit" if len(self.job_ids) < 6:
                self.job_ids.append(f"j{len(self.job_ids) + 1}")
                job = draw.choice(_SHAPES)(draw.randint(1, 4))
                isolation = draw.choice((Isolation.SLOT, Isolation.VERTEX))
                job = with_options(job, {**_RESTARTS, ISOLATION.key: isolation.value})
                world.request(dispatcher.SubmitJob(job_id=self.job_ids[-1], job_graph=job))
            case "lose" if world.workers:
                resource_id = draw.choice(sorted(world.workers))
                world.kill_worker(resource_id)
                self.lose(resource_id, exited=True)
            case "start":
                world.start_worker(draw.choice(("te-1", "te-2", "te-3")), draw.randint(1, 2))
            case _:
                world.settle()
                world.tick(draw.choice((0.5, 2, 5)))
