"""What single changes come to, and what is refused because the history has no place for it."""

from __future__ import annotations

import functools

import pytest

from tailrace.schemas import dispatcher
from tailrace.services.simulation.latencies import Latencies
from tailrace.services.simulation.task_behavior import UniformTaskBehavior
from tailrace.services.simulation.what_if.scenario import ScenarioError
from tailrace.services.simulation.what_if.scenario_parser import parse_scenario
from tailrace.services.simulation.what_if.what_if import WhatIf, simulate

from ...simulated_cluster.cluster import SECOND
from .history_builder import HistoryBuilder, MemoryHistory

RESTARTS = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 s"}


@functools.cache
def calm() -> MemoryHistory:
    """Two TaskExecutors of two slots. j1 has two of the slots from the first second on, j2 three from the tenth, as far
    as there are so many; tasks take 100 s. At 60 s j3 is submitted and wants one."""
    studio = HistoryBuilder(RESTARTS, UniformTaskBehavior(Latencies(), 100 * SECOND))
    studio.start_workers("te-1", "te-2", slots=2)
    studio.schedule_at(1, studio.submit, "j1", 2)
    studio.schedule_at(10, studio.submit, "j2", 3)
    studio.schedule_at(60, studio.submit, "j3", 1)
    return studio.run(400)


def place(seconds: float) -> MemoryHistory:
    """At the last event up to so many seconds after the beginning."""
    history = calm()
    time = (1_000 + seconds) * SECOND
    return history.at(max(each.offset for each in history.records if each.header.time <= time))


def changed(text: str, seconds: float = 30) -> WhatIf:
    """What a scenario makes of it."""
    return simulate(place(seconds), parse_scenario(text, "s.yaml"))


def job(found: WhatIf, job_id: str, *, really: bool = False):  # type: ignore[no-untyped-def]
    """How it fared."""
    outcome = found.really if really else found.would
    assert outcome is not None
    return next(each for each in outcome.jobs if each.job_id == job_id)


def names(found: WhatIf) -> list[str]:
    """Of the events that would have been said."""
    return [each.body.AVRO_NAME.rpartition(".")[2] for each in found.log]


def test_task_executors_that_join_take_what_waits() -> None:
    found = changed("events: [{at: 5 s, join: {count: 2, slots: 4}}]")
    # It lacks a slot since 10 s, and the place is the last event before 30 s.
    assert job(found, "j2", really=True).waited > 60 * SECOND
    assert job(found, "j2").waited <= 25 * SECOND
    assert job(found, "j2").ended < job(found, "j2", really=True).ended
    assert max(step.total for step in found.would.slots) == 12
    assert not found.notes


def test_a_task_executor_that_dies_takes_its_tasks_with_it() -> None:
    found = changed(
        "{configuration: {heartbeat.timeout: 20 s, heartbeat.interval: 5 s}, events: [{at: 5 s, kill: te-1}]}"
    )
    assert job(found, "j1", really=True).restarts == 0
    assert job(found, "j1").restarts == 1
    lost = next(each for each in found.would.happenings if each.text == "te-1 lost")
    begin = found.would.start + 5 * SECOND
    assert lost.time == begin + 20 * SECOND, "nobody sees it end: its heartbeats are missing"


@pytest.mark.parametrize(("timeout", "restarts"), [("20 s", 1), ("40 s", 0)])
def test_a_silence_counts_as_a_loss_after_the_time_that_the_scenario_says(
    timeout: str, restarts: int
) -> None:
    studio = HistoryBuilder({**RESTARTS, "heartbeat.timeout": "25 s", "heartbeat.interval": "5 s"})
    studio.start_workers("te-1", "te-2", slots=2)
    studio.schedule_at(1, studio.submit, "j1", 2)
    studio.schedule_at(20, studio.workers.pause, "te-1")
    studio.schedule_at(45, studio.workers.lose_heartbeats, "te-1", "no heartbeat")
    studio.schedule_at(50, studio.workers.resume, "te-1")
    history = studio.run(120).at(30)
    again = simulate(history, parse_scenario(""))
    assert job(again, "j1", really=True).restarts == job(again, "j1").restarts == 1
    found = simulate(history, parse_scenario(f"configuration: {{heartbeat.timeout: {timeout}}}"))
    assert job(found, "j1").restarts == restarts


def test_a_job_is_submitted_like_another_one_with_another_parallelism() -> None:
    found = changed(
        "events: [{at: 1 s, submit: {like: j1, parallelism: 4, as: big}}, {at: 2 s, join: {slots: 4}}]"
    )
    big = job(found, "big")
    assert big.required_slots == 4
    assert big.status == "FINISHED"
    ran = big.ended - big.ran
    assert ran == pytest.approx(100 * SECOND, abs=SECOND), "its tasks take as long as those that it is like"


def test_a_job_is_cancelled() -> None:
    found = changed("events: [{at: 7 s, cancel: j1}]")
    assert job(found, "j1").status == "CANCELED"
    assert job(found, "j1").ended == pytest.approx(found.would.start + 7 * SECOND, abs=SECOND)
    assert job(found, "j2").waited < job(found, "j2", really=True).waited


def test_a_task_fails_and_starts_again() -> None:
    graph = place(30).start_of("j1").job_graph  # type: ignore[union-attr]
    name = graph.vertices[-1].name
    found = changed(f'events: [{{at: 7 s, fail: {{job: j1, task: "{name} (2/2)", reason: a bad line}}}}]')
    assert job(found, "j1").restarts == 1
    assert any(getattr(each.body, "failure", None) == "a bad line" for each in found.log)
    assert not found.notes


def test_while_nobody_leads_nothing_is_decided_and_nothing_is_lost() -> None:
    found = changed("events: [{at: 5 s, kill_leader: dispatcher, for: 50 s}]")
    silent = [
        each
        for each in found.log
        if found.would.start + 5 * SECOND < each.header.time < found.would.start + 55 * SECOND
    ]
    assert {each.header.sender.partition("/")[0] for each in silent} <= {"task_executor", "client"}
    # j3 is submitted meanwhile.
    assert job(found, "j3", really=True).submitted == pytest.approx(1_060 * SECOND, abs=SECOND)
    assert job(found, "j3").submitted == pytest.approx(found.would.start + 55 * SECOND, abs=SECOND)
    assert job(found, "j3").status == "FINISHED"


def test_options_are_those_that_roles_go_by() -> None:
    impatient = changed(
        "configuration: {slot.request.unfulfillable-timeout: 5 s, slot.request.timeout: 15 s}"
    )
    assert job(impatient, "j2", really=True).status == "FINISHED"
    assert job(impatient, "j2").status == "FAILED"
    assert "no slot within" in job(impatient, "j2").reason
    said = next(each.body for each in impatient.log if names(impatient)[0] == "ConfigurationChanged")
    assert said.configuration["slot.request.timeout"] == "15 s"  # type: ignore[attr-defined]
    assert said.configuration["restart-strategy.type"] == "fixed-delay", "the others are as they were"  # type: ignore[attr-defined]


def test_slots_are_placed_as_the_option_says() -> None:
    def hosts(found: WhatIf) -> set[str]:
        return {
            each.header.recipient
            for each in found.log
            if each.body.AVRO_NAME == "tailrace.task_executor.RequestSlot" and each.body.job_id == "j1"  # type: ignore[attr-defined]
        }

    assert len(hosts(changed("until: 5 s", seconds=0.5))) == 1
    assert (
        len(hosts(changed("{until: 5 s, configuration: {cluster.evenly-spread-out-slots: true}}", 0.5))) == 2
    )


def test_tasks_run_as_long_as_the_scenario_says() -> None:
    short = changed("tasks: {run: 10 s, start: 1 s}")
    assert job(short, "j1").ended == pytest.approx(short.would.start + 10 * SECOND, abs=SECOND)
    endless = changed("tasks: {run: forever}")
    assert job(endless, "j1").status == "RUNNING"
    assert endless.would.end == endless.would.start + 600 * SECOND


def test_what_runs_at_the_place_runs_on() -> None:
    found = changed("until: 5 s")
    assert "SubmitTask" not in names(found)
    assert job(found, "j1").ran == found.would.start
    assert job(found, "j1").interrupted == 0


def test_at_the_end_of_the_log_there_is_nothing_to_compare_with() -> None:
    history = calm()
    found = simulate(history, parse_scenario("events: [{at: 5 s, submit: {like: j1, as: more}}]"))
    assert found.really is None
    assert [(each.job_id, each.status) for each in found.would.jobs] == [("more", "FINISHED")]


def test_before_the_first_event_all_of_it_happens_again() -> None:
    found = simulate(calm().at(-1), parse_scenario(""))
    assert found.really is not None
    assert {each.job_id: each.status for each in found.would.jobs} == {
        each.job_id: each.status for each in found.really.jobs
    }


def test_active_workers_are_started_as_slots_are_wanted() -> None:
    studio = HistoryBuilder({"resourcemanager.mode": "active", "slotmanager.number-of-slots.max": "4"})
    studio.schedule_at(1, studio.submit, "j1", 1)
    history = studio.run(30)
    found = simulate(
        history, parse_scenario("events: [{at: 1 s, submit: {like: j1, parallelism: 3, as: j2}}]")
    )
    assert names(found).count("StartWorker") == 1
    assert job(found, "j2").status == "RUNNING"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{at: 1 s, kill: te-9}", "2: kill: there is no TaskExecutor 'te-9': the nearest is 'te-2'; there are te-1"),
        ("{at: 1 s, cancel: j9}", "s.yaml:2: cancel: there is no job 'j9': the nearest is 'j3'; there are j1, j2, j3"),
        ("{at: 1 s, submit: {like: j9}}", "there is no job to be like 'j9'"),
        ("{at: 1 s, submit: {like: j1, as: j2}}", "job j2 is there already: give another name with `as: NAME`"),
        ("{at: 1 s, submit: {like: j1, parallelism: 30000}}", "parallelism 30000 is not possible for j1"),
        ("{at: 1 s, fail: {job: j1, task: nothing}}", "there is no task of job j1 'nothing'"),
        ("{at: 1 s, fail: {job: j9, task: nothing}}", "there is no job 'j9'"),
        ("{at: 1 s, kill_leader: job_master/j9}", "there is no job 'j9'"),
    ],
)  # fmt: skip
def test_who_is_not_there_is_named_with_those_who_are(text: str, told: str) -> None:
    with pytest.raises(ScenarioError) as error:
        changed(f"events:\n  - {text}\n")
    assert told in str(error.value)


def test_what_would_happen_behind_the_end_is_refused() -> None:
    with pytest.raises(
        ScenarioError, match=r"s\.yaml:1: at: 20 min is behind the end of the scenario, 10 min: give"
    ):
        changed("events: [{at: 20 min, kill: te-1}]")
    with pytest.raises(ScenarioError, match=r"at: 6 s is behind the end of the scenario, 5 s"):
        changed("{until: 5 s, events: [{at: 6 s, kill: te-1}]}")


def test_options_that_contradict_those_of_the_cluster_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"s\.yaml: configuration: .*heartbeat"):
        changed("configuration: {heartbeat.timeout: 1 s}")


def test_what_comes_to_nothing_is_told() -> None:
    found = changed("""events:
      - {at: 1 s, kill: te-1}
      - {at: 2 s, kill: te-1}
      - {at: 3 s, join: {name: te-2}}
      - {at: 4 s, kill_leader: job_master/j1, for: 9 s}
      - {at: 5 s, kill_leader: dispatcher}
    """)
    assert [each.partition(": ")[2] for each in found.notes] == [
        "kill te-1: te-1 is not there at that time",
        "te-2 joins: te-2 is there already",
        "kill the leader of dispatcher: nobody leads dispatcher at that time",
    ]


def test_a_savepoint_stops_a_job_as_it_did() -> None:
    studio = HistoryBuilder({**RESTARTS, "execution.checkpointing.interval": "3 s"})
    studio.start_workers("te-1", slots=4)
    studio.schedule_at(1, studio.submit, "j1", 2)
    studio.schedule_at(20, studio.request, dispatcher.StopWithSavepoint(job_id="j1", directory=None))
    history = studio.run(60)
    at = max(each.offset for each in history.records if each.header.time <= 1_010 * SECOND)
    found = simulate(history.at(at), parse_scenario("until: 50 s"))
    assert job(found, "j1", really=True).status == "FINISHED"
    assert job(found, "j1").status == "FINISHED"
    assert job(found, "j1").ended == pytest.approx(job(found, "j1", really=True).ended, abs=SECOND)
