"""Who held each slot: laws over random histories, and the slots of a known one."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tailrace.services.core.replica import Replica
from tailrace.services.core.role import Time
from tailrace.services.simulation.what_if.outcome_metrics import Outcome, OutcomeMetrics
from tailrace.services.simulation.what_if.scenario_parser import parse_scenario
from tailrace.services.simulation.what_if.slot_history import SlotHistory, SlotObserver
from tailrace.services.simulation.what_if.what_if import simulate

from ...simulated_cluster.cluster import SECOND, new_replica
from .history_builder import BEGIN, MemoryHistory, any_history
from .test_scenarios import changed


def observed(history: MemoryHistory, max_spans: int = 10**6) -> tuple[Outcome, SlotHistory, Replica]:
    """Returns the metrics of a whole history, with its slots."""
    replica = new_replica(on_illegal=lambda *_: None)
    metrics, observer = OutcomeMetrics(replica, BEGIN), SlotObserver(replica, BEGIN, max_spans)
    now: Time = BEGIN
    for record in history.records:
        now = max(now, record.header.time)
        touched = replica.apply(record)
        metrics.on_event(record, touched)
        observer.on_changed(touched, now)
    return metrics.outcome(now), observer.history(now), replica


@pytest.mark.parametrize("seed", range(6))
def test_spans_of_slot_follow_each_other_while_it_is_registered(seed: int) -> None:
    outcome, held, _ = observed(any_history(seed))
    assert outcome.held == held
    time_held = time_present = 0
    for slot in held.slots:
        assert all(first.end <= second.start for first, second in pairwise(slot.spans))
        assert all(first[1] <= second[0] for first, second in pairwise(slot.present))
        for span in slot.spans:
            assert span.start < span.end
            assert any(start <= span.start and span.end <= end for start, end in slot.present)
            time_held += span.end - span.start
        time_present += sum(end - start for start, end in slot.present)
    assert time_present == outcome.registered_time()
    # The ResourceManager counts a slot from its request on, and until it hears that it is free.
    assert time_held <= outcome.used_time()
    assert time_held >= 0.9 * outcome.used_time()


def test_last_spans_are_those_of_states() -> None:
    _, held, replica = observed(any_history(1))
    for slot in held.slots:
        table = replica.states[f"task_executor/{slot.resource_id}"].slots
        if slot.present and slot.present[-1][1] == held.end:
            job_id = table.slots[slot.slot].job_id
            is_held = bool(slot.spans) and slot.spans[-1].end == held.end
            assert (slot.spans[-1].job_id if is_held else None) == job_id


def test_history_ends_when_it_has_most_spans() -> None:
    _, held, _ = observed(any_history(1))
    _, few, _ = observed(any_history(1), 3)
    assert few.end < held.end
    for slot, whole in zip(few.slots, held.slots, strict=False):
        assert slot.spans == whole.spans[: len(slot.spans)] or slot.spans[-1].end == few.end


def test_killed_task_executor_loses_its_slots_and_others_get_its_tasks() -> None:
    what_if = changed("events: [{at: 5 s, join: {count: 2, slots: 2}}, {at: 20 s, kill: te-1}]")
    slots = {(each.resource_id, each.slot): each for each in what_if.would.held.slots}
    assert {name for name, _ in slots} == {"te-1", "te-2", "joined-1", "joined-2"}
    lost = slots["te-1", 0].present[-1][1]
    assert what_if.would.start + 20 * SECOND < lost < what_if.would.end
    later = [
        span
        for (name, _), each in slots.items()
        if name != "te-1"
        for span in each.spans
        if span.job_id == "j1" and any(task.attempt == 1 for task in span.tasks)
    ]
    assert later
    assert all(span.end > lost for span in later)
    assert {task.vertex for span in later for task in span.tasks} <= {
        vertex.name
        for vertex in what_if_graph("j1")  # their names, not their ids
    }


def what_if_graph(job_id: str):  # type: ignore[no-untyped-def]
    """Returns the vertices of a job of the known history."""
    from .test_scenarios import place

    return place(30).start_of(job_id).job_graph.vertices  # type: ignore[union-attr]


def test_empty_scenario_gives_same_holders() -> None:
    what_if = simulate(any_history(2).at(-1), parse_scenario(""))
    assert what_if.really is not None
    holders = [
        {
            (each.resource_id, each.slot, span.job_id, span.tasks)
            for each in outcome.held.slots
            for span in each.spans
        }
        for outcome in (what_if.really, what_if.would)
    ]
    assert holders[0] == holders[1]
