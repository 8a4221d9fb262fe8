"""A decision of the ResourceManager is one failure of a job, however its events, other failures and verdicts
interleave: it sends an event for each slot."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.schemas import job_master
from tailrace.schemas.types import ExecutionState

from ...graphs import job_graph, source
from .driver import running

SLOTS = 8
GRAPH = job_graph(source(parallelism=SLOTS))
AT_ONCE = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100",
    "restart-strategy.fixed-delay.delay": "0 s",
}
ACTIONS = st.lists(
    st.sampled_from(("slot fails", "slot fails", "decision begins", "task fails", "verdict")), max_size=24
)


@settings(deadline=None, max_examples=200)
@given(actions=ACTIONS)
def test_failures_count_once_for_each_decision_and_verdict(actions: list[str]) -> None:
    job = running(GRAPH, AT_ONCE)
    untouched = job.executions()
    decision = len(job.log) - 1
    pending, counted = set[int](), set[int]()
    count = 0
    for action in [*actions, "verdict"]:
        match action:
            case "decision begins":
                decision = len(job.log) - 1
            case "slot fails" if untouched:
                slot = untouched.pop().allocation_id or ""
                lost = job_master.FailSlot(allocation_id=slot, reason="its TaskExecutor has left")
                job.receive("resource_manager", lost, decided_at=decision)
                pending.add(decision)
            case "task fails" if untouched:
                # Reported behind all decisions so far, so its offset is a cause of its own.
                pending.add(-job.report(untouched.pop(), ExecutionState.FAILED, "broken"))
            case "verdict" if pending:
                job.judge()
                count += not pending <= counted
                counted |= pending
                pending = set()
    assert job.state.failures.counted == count
