"""Hypothesis chooses the order of the steps of the simulation, and shrinks a failing sequence.

`EXAMPLES=5000 pytest tests/services/test_any_order.py` tries more sequences, different ones each time. Seeds
(`test_chaos.py`) run a hundred times as fast and find more; a short sequence is easier to understand.
"""

from __future__ import annotations

import os
import random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from .async_simulator import lines
from .simulated_cluster.chaos import ALWAYS, FAULT_ACTIONS, Chaos

SOAK = "EXAMPLES" in os.environ


class AnyOrder(RuleBasedStateMachine):
    """The state machine; the rules are created from the names of the steps."""

    chaos: Chaos

    @initialize(draw=st.randoms(use_true_random=False), turns=st.integers(0, 14))
    def begins(self, draw: random.Random, turns: int) -> None:
        """The first rule starts from a random state of a cluster."""
        self.chaos = Chaos(draw)
        self.chaos.begin()
        for _ in range(turns):
            self.chaos.turn()

    @rule(kind=st.sampled_from(sorted(ALWAYS)))
    def goes_on(self, kind: str) -> None:
        self._describe_failure(lambda: self.chaos.step(kind))

    @rule(kind=st.sampled_from(sorted(FAULT_ACTIONS)))
    def has_trouble(self, kind: str) -> None:
        self._describe_failure(lambda: self.chaos.step(kind))

    @rule(turns=st.integers(1, 4))
    def takes_turns(self, turns: int) -> None:
        for _ in range(turns):
            self.goes_on("turn")

    def teardown(self) -> None:
        if hasattr(self, "chaos"):
            self._describe_failure(self.chaos.end)

    def _describe_failure(self, step: object) -> None:
        try:
            step()  # type: ignore[operator]
        except AssertionError as error:
            world = self.chaos.world
            raise AssertionError("\n".join([str(error), *lines(world.log), *world.illegal])) from None


AnyOrder.TestCase.settings = settings(
    max_examples=int(os.environ.get("EXAMPLES", "40")),
    stateful_step_count=60 if SOAK else 40,
    derandomize=not SOAK,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
test_any_order = AnyOrder.TestCase
