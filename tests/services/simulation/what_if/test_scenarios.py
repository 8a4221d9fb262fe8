"""The effects of single changes, and the rejection of changes that do not fit the history."""

from __future__ import annotations

import functools

import pytest

from tailrace.schemas import dispatcher, job_master
from tailrace.schemas.body import Body
from tailrace.schemas.everyone import TaskExecutorLost
from tailrace.schemas.types import VertexMeasurement
from tailrace.services.core.role import Instruction
from tailrace.services.job_master.instructions import MeasureTasks
from tailrace.services.simulation.latencies import Latencies
from tailrace.services.simulation.task_behavior import UniformTaskBehavior
from tailrace.services.simulation.what_if.report import scaling_rows
from tailrace.services.simulation.what_if.scenario import ScenarioError
from tailrace.services.simulation.what_if.scenario_parser import parse_scenario
from tailrace.services.simulation.what_if.what_if import WhatIf, simulate

from ...simulated_cluster.cluster import SECOND
from .history_builder import HistoryBuilder, MemoryHistory

RESTARTS = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 s"}


@functools.cache
def calm() -> MemoryHistory:
    """Returns a history of two TaskExecutors with two slots each. j1 has two slots from the first second on, j2
    needs three from the tenth on; tasks take 100 s. At 60 s j3 is submitted, which needs one."""
    studio = HistoryBuilder(RESTARTS, UniformTaskBehavior(Latencies(), 100 * SECOND))
    studio.start_workers("te-1", "te-2", slots=2)
    studio.schedule_at(1, studio.submit, "j1", 2)
    studio.schedule_at(10, studio.submit, "j2", 3)
    studio.schedule_at(60, studio.submit, "j3", 1)
    return studio.run(400)


def place(seconds: float) -> MemoryHistory:
    """Returns the position at the last event up to so many seconds after the beginning."""
    history = calm()
    time = (1_000 + seconds) * SECOND
    return history.at(max(record.offset for record in history.records if record.header.time <= time))


def changed(text: str, seconds: float = 30) -> WhatIf:
    """Returns the result of a scenario."""
    return simulate(place(seconds), parse_scenario(text, "s.yaml"))


def job(found: WhatIf, job_id: str, *, really: bool = False):  # type: ignore[no-untyped-def]
    """Returns the outcome of a job."""
    outcome = found.really if really else found.would
    assert outcome is not None
    return next(job for job in outcome.jobs if job.job_id == job_id)


def names(found: WhatIf) -> list[str]:
    """Returns the names of the simulated events."""
    return [record.body.AVRO_NAME.rpartition(".")[2] for record in found.log]


def test_added_task_executors_serve_pending_requests() -> None:
    what_if = changed("events: [{at: 5 s, join: {count: 2, slots: 4}}]")
    # It lacks a slot since 10 s, and the place is the last event before 30 s.
    assert job(what_if, "j2", really=True).waited > 60 * SECOND
    assert job(what_if, "j2").waited <= 25 * SECOND
    assert job(what_if, "j2").ended < job(what_if, "j2", really=True).ended
    assert max(step.total for step in what_if.would.slots) == 12
    assert not what_if.notes


def test_killed_task_executor_fails_its_tasks() -> None:
    what_if = changed(
        "{configuration: {heartbeat.timeout: 20 s, heartbeat.interval: 5 s}, events: [{at: 5 s, kill: te-1}]}"
    )
    assert job(what_if, "j1", really=True).restarts == 0
    assert job(what_if, "j1").restarts == 1
    lost = next(record for record in what_if.log if isinstance(record.body, TaskExecutorLost))
    begin = what_if.would.start + 5 * SECOND
    assert lost.header.time == begin + 20 * SECOND, "nobody sees it end: its heartbeats are missing"


@pytest.mark.parametrize(("timeout", "restarts"), [("20 s", 1), ("40 s", 0)])
def test_silence_counts_as_loss_after_timeout_of_scenario(timeout: str, restarts: int) -> None:
    studio = HistoryBuilder({**RESTARTS, "heartbeat.timeout": "25 s", "heartbeat.interval": "5 s"})
    studio.start_workers("te-1", "te-2", slots=2)
    studio.schedule_at(1, studio.submit, "j1", 2)
    studio.schedule_at(20, studio.workers.pause, "te-1")
    studio.schedule_at(45, studio.workers.lose_heartbeats, "te-1", "no heartbeat")
    studio.schedule_at(50, studio.workers.resume, "te-1")
    history = studio.run(120).at(30)
    again = simulate(history, parse_scenario(""))
    assert job(again, "j1", really=True).restarts == job(again, "j1").restarts == 1
    what_if = simulate(history, parse_scenario(f"configuration: {{heartbeat.timeout: {timeout}}}"))
    assert job(what_if, "j1").restarts == restarts


def test_job_is_submitted_like_another_with_different_parallelism() -> None:
    what_if = changed(
        "events: [{at: 1 s, submit: {like: j1, parallelism: 4, as: big}}, {at: 2 s, join: {slots: 4}}]"
    )
    big = job(what_if, "big")
    assert big.required_slots == 4
    assert big.status == "FINISHED"
    ran = big.ended - big.ran
    assert ran == pytest.approx(100 * SECOND, abs=SECOND), "its tasks take as long as those that it is like"


def test_job_is_cancelled() -> None:
    what_if = changed("events: [{at: 7 s, cancel: j1}]")
    assert job(what_if, "j1").status == "CANCELED"
    assert job(what_if, "j1").ended == pytest.approx(what_if.would.start + 7 * SECOND, abs=SECOND)
    assert job(what_if, "j2").waited < job(what_if, "j2", really=True).waited


def test_task_fails_and_restarts() -> None:
    graph = place(30).start_of("j1").job_graph  # type: ignore[union-attr]
    name = graph.vertices[-1].name
    what_if = changed(f'events: [{{at: 7 s, fail: {{job: j1, task: "{name} (2/2)", reason: a bad line}}}}]')
    assert job(what_if, "j1").restarts == 1
    assert any(getattr(record.body, "failure", None) == "a bad line" for record in what_if.log)
    assert not what_if.notes


def test_without_leader_nothing_is_decided_and_nothing_is_lost() -> None:
    what_if = changed("events: [{at: 5 s, kill_leader: dispatcher, for: 50 s}]")
    silent = [
        record
        for record in what_if.log
        if what_if.would.start + 5 * SECOND < record.header.time < what_if.would.start + 55 * SECOND
    ]
    assert {record.header.sender.partition("/")[0] for record in silent} <= {"task_executor", "client"}
    # j3 is submitted meanwhile.
    assert job(what_if, "j3", really=True).submitted == pytest.approx(1_060 * SECOND, abs=SECOND)
    assert job(what_if, "j3").submitted == pytest.approx(what_if.would.start + 55 * SECOND, abs=SECOND)
    assert job(what_if, "j3").status == "FINISHED"


def test_options_are_used_by_roles() -> None:
    impatient = changed(
        "configuration: {slot.request.unfulfillable-timeout: 5 s, slot.request.timeout: 15 s}"
    )
    assert job(impatient, "j2", really=True).status == "FINISHED"
    assert job(impatient, "j2").status == "FAILED"
    assert "no slot within" in job(impatient, "j2").reason
    event = next(record.body for record in impatient.log if names(impatient)[0] == "ConfigurationChanged")
    assert event.configuration["slot.request.timeout"] == "15 s"  # type: ignore[attr-defined]
    assert event.configuration["restart-strategy.type"] == "fixed-delay", "the others are as they were"  # type: ignore[attr-defined]


def test_option_sets_placement_of_slots() -> None:
    def hosts(found: WhatIf) -> set[str]:
        return {
            record.header.recipient
            for record in found.log
            if record.body.AVRO_NAME == "tailrace.task_executor.RequestSlot" and record.body.job_id == "j1"  # type: ignore[attr-defined]
        }

    assert len(hosts(changed("until: 5 s", seconds=0.5))) == 1
    assert (
        len(hosts(changed("{until: 5 s, configuration: {cluster.evenly-spread-out-slots: true}}", 0.5))) == 2
    )


def test_tasks_run_as_long_as_scenario_says() -> None:
    short = changed("tasks: {run: 10 s, start: 1 s}")
    assert job(short, "j1").ended == pytest.approx(short.would.start + 10 * SECOND, abs=SECOND)
    endless = changed("tasks: {run: forever}")
    assert job(endless, "j1").status == "RUNNING"
    assert endless.would.end == endless.would.start + 600 * SECOND


def test_running_tasks_continue_from_position() -> None:
    what_if = changed("until: 5 s")
    assert "SubmitTask" not in names(what_if)
    assert job(what_if, "j1").ran == what_if.would.start
    assert job(what_if, "j1").interrupted == 0


def test_end_of_log_has_no_recorded_outcome() -> None:
    history = calm()
    what_if = simulate(history, parse_scenario("events: [{at: 5 s, submit: {like: j1, as: more}}]"))
    assert what_if.really is None
    assert [(job.job_id, job.status) for job in what_if.would.jobs] == [("more", "FINISHED")]


def test_position_before_first_event_repeats_whole_history() -> None:
    what_if = simulate(calm().at(-1), parse_scenario(""))
    assert what_if.really is not None
    assert {job.job_id: job.status for job in what_if.would.jobs} == {
        job.job_id: job.status for job in what_if.really.jobs
    }


def test_active_mode_starts_workers_on_demand() -> None:
    studio = HistoryBuilder({"resourcemanager.mode": "active", "slotmanager.number-of-slots.max": "4"})
    studio.schedule_at(1, studio.submit, "j1", 1)
    history = studio.run(30)
    what_if = simulate(
        history, parse_scenario("events: [{at: 1 s, submit: {like: j1, parallelism: 3, as: j2}}]")
    )
    assert names(what_if).count("StartWorker") == 1
    assert job(what_if, "j2").status == "RUNNING"


@pytest.mark.parametrize(
    ("text", "message"),
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
def test_unknown_entity_is_rejected_with_known_ones(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        changed(f"events:\n  - {text}\n")
    assert message in str(error.value)


def test_event_after_end_is_rejected() -> None:
    with pytest.raises(
        ScenarioError, match=r"s\.yaml:1: at: 20 min is behind the end of the scenario, 10 min: give"
    ):
        changed("events: [{at: 20 min, kill: te-1}]")
    with pytest.raises(ScenarioError, match=r"at: 6 s is behind the end of the scenario, 5 s"):
        changed("{until: 5 s, events: [{at: 6 s, kill: te-1}]}")


def test_options_that_contradict_cluster_are_rejected() -> None:
    with pytest.raises(ScenarioError, match=r"s\.yaml: configuration: .*heartbeat"):
        changed("configuration: {heartbeat.timeout: 1 s}")


def test_change_without_effect_is_reported() -> None:
    what_if = changed("""events:
      - {at: 1 s, kill: te-1}
      - {at: 2 s, kill: te-1}
      - {at: 3 s, join: {name: te-2}}
      - {at: 4 s, kill_leader: job_master/j1, for: 9 s}
      - {at: 5 s, kill_leader: dispatcher}
    """)
    assert [note.partition(": ")[2] for note in what_if.notes] == [
        "kill te-1: te-1 is not there at that time",
        "te-2 joins: te-2 is there already",
        "kill the leader of dispatcher: nobody leads dispatcher at that time",
    ]


def test_savepoint_stops_job_as_recorded() -> None:
    studio = HistoryBuilder({**RESTARTS, "execution.checkpointing.interval": "3 s"})
    studio.start_workers("te-1", slots=4)
    studio.schedule_at(1, studio.submit, "j1", 2)
    studio.schedule_at(20, studio.request, dispatcher.StopWithSavepoint(job_id="j1", directory=None))
    history = studio.run(60)
    at = max(record.offset for record in history.records if record.header.time <= 1_010 * SECOND)
    what_if = simulate(history.at(at), parse_scenario("until: 50 s"))
    assert job(what_if, "j1", really=True).status == "FINISHED"
    assert job(what_if, "j1").status == "FINISHED"
    assert job(what_if, "j1").ended == pytest.approx(job(what_if, "j1", really=True).ended, abs=SECOND)


def measured(instruction: Instruction, now: int) -> tuple[int, Body | None] | None:
    """Returns what masters' shells measure: all vertices are busy for 90 % of the time."""
    if not isinstance(instruction, MeasureTasks):
        return None
    vertices = tuple(
        VertexMeasurement(
            vertex_id=vertex_id,
            parallelism=parallelism,
            records_in=900,
            records_out=900,
            busy=0.9,
            back_pressured=0,
        )
        for vertex_id, parallelism in sorted(instruction.vertices.items())
    )
    body = job_master.TasksMeasured(job_id=instruction.job_id, duration=instruction.window, vertices=vertices)
    return instruction.begins + instruction.window - now, body


def test_other_options_of_autoscaler_decide_otherwise_on_what_was_measured() -> None:
    options = {
        "job.autoscaler.enabled": "true",
        "job.autoscaler.stabilization.interval": "5 s",
        "job.autoscaler.metrics.window": "10 s",
    }
    studio = HistoryBuilder({**RESTARTS, **options}, told=measured)
    studio.start_workers("te-1", "te-2", slots=4)
    studio.schedule_at(1, studio.submit, "j1", 2)
    history = studio.run(100)
    at = max(record.offset for record in history.records if record.header.time <= 1_010 * SECOND)
    same = simulate(history.at(at), parse_scenario("until: 80 s"))
    assert same.really is not None
    assert same.really.scalings == same.would.scalings == ()
    assert names(same).count("ScalingDecided") >= 5
    what_if = simulate(
        history.at(at),
        parse_scenario(
            "until: 80 s\nconfiguration: {job.autoscaler.target.utilization.boundary: 0.1}", "s.yaml"
        ),
    )
    first = what_if.would.scalings[0]
    assert (first.job_id, {*first.parallelism.values()}, first.is_advice) == ("j1", {3}, False)
    assert "900 records/s arrive, and it can process 1,000" in first.reason
    assert "RescaleStarted" in names(what_if)
    assert [row[0] for row in scaling_rows(what_if)][:1] == ["what if"]
