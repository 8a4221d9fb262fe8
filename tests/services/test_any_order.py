"""Whatever is submitted, cancelled, finished, killed, restarted and delayed, in whatever order: the laws hold.

`EXAMPLES=5000 pytest tests/services/test_any_order.py` looks further, at other orders each time.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tailrace.schemas import dispatcher
from tailrace.schemas.types import EntryPoint, ExecutionState

from .simulation import graph
from .world import Process, World, check_always, check_idle, check_settled, lines

SOAK = "EXAMPLES" in os.environ
RESOURCE_IDS = ("te-1", "te-2", "te-3")
JOB_IDS = ("j1", "j2", "j3")
PARALLELISM = st.integers(1, 3)


class AnyOrder(RuleBasedStateMachine):
    """The rules move one process by one step each; `everybody_settles` lets all finish what they have begun."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @initialize(
        slots=st.lists(st.integers(1, 3), min_size=1, max_size=3),
        settled=st.booleans(),
        parallelism=PARALLELISM,
        turns=st.integers(0, 14),
    )
    def starts(self, slots: list[int], settled: bool, parallelism: int, turns: int) -> None:
        """A first job, on its way already: the rest begins in the middle of a conversation."""
        self.world.start_master()
        for resource_id, count in zip(RESOURCE_IDS, slots, strict=False):
            self.world.start_worker(resource_id, count)
        if settled:
            self.world.settle()
        self.a_job_is_submitted(JOB_IDS[0], parallelism, 1)
        for _ in range(turns):
            self.world.turn()

    @rule(job_id=st.sampled_from(JOB_IDS), parallelism=PARALLELISM, admitted=st.integers(1, 2))
    def a_job_is_submitted(self, job_id: str, parallelism: int, admitted: int) -> None:
        body = dispatcher.SubmitJob(job_id=job_id, job_graph=graph(parallelism))
        self.world.request(body, admitted=admitted)

    @rule(job_id=st.sampled_from(JOB_IDS), parallelism=PARALLELISM, name=st.sampled_from(("good", "fails")))
    def a_program_is_submitted(self, job_id: str, parallelism: int, name: str) -> None:
        entry_point = EntryPoint(target=name, arguments=())
        body = dispatcher.SubmitJob(job_id=job_id, entry_point=entry_point, parallelism=parallelism)
        self.world.request(body)

    @rule(job_id=st.sampled_from(JOB_IDS))
    def a_job_is_cancelled(self, job_id: str) -> None:
        self.world.request(dispatcher.CancelJob(job_id=job_id))

    @rule(data=st.data(), state=st.sampled_from((ExecutionState.FINISHED, ExecutionState.FAILED)))
    @precondition(lambda self: any(process.running for process in self.world.processes()))
    def a_task_ends(self, data: st.DataObject, state: ExecutionState) -> None:
        running = [
            (process, attempt) for process in self.world.processes() for attempt in sorted(process.running)
        ]
        process, attempt = data.draw(st.sampled_from(running))
        process.report(attempt, state, "broken" if state is ExecutionState.FAILED else None)

    @rule(job_id=st.sampled_from(JOB_IDS))
    def a_job_runs_to_its_end(self, job_id: str) -> None:
        for process in self.world.processes():
            for attempt in [each for each, task in process.running.items() if task[0] == job_id]:
                process.report(attempt, ExecutionState.FINISHED)

    @rule(turns=st.integers(1, 4))
    def everybody_takes_turns(self, turns: int) -> None:
        for _ in range(turns):
            self.world.turn()

    @rule(data=st.data(), count=st.integers(1, 5))
    @precondition(lambda self: self.world.processes())
    def one_reads_on(self, data: st.DataObject, count: int) -> None:
        self._any(data).fold(count)

    @rule(data=st.data())
    @precondition(lambda self: self.world.processes())
    def one_decides(self, data: st.DataObject) -> None:
        process = self._any(data)
        process.fold()
        process.decide()

    @rule(data=st.data(), count=st.integers(1, 3))
    @precondition(lambda self: any(process.unsaid for process in self.world.processes()))
    def a_shell_speaks(self, data: st.DataObject, count: int) -> None:
        speaking = [process for process in self.world.processes() if process.unsaid]
        data.draw(st.sampled_from(speaking)).speak(count)

    @rule(data=st.data(), only=st.integers(0, 4))
    @precondition(lambda self: self.world.processes())
    def one_dies_between_two_events(self, data: st.DataObject, only: int) -> None:
        process = self._any(data)
        process.fold()
        process.decide(only=only)
        process.end()

    @rule()
    def a_jobmanager_starts(self) -> None:
        self.world.start_master()

    @rule(resource_id=st.sampled_from(RESOURCE_IDS), slots=st.integers(1, 3))
    def a_task_executor_starts(self, resource_id: str, slots: int) -> None:
        self.world.start_worker(resource_id, slots)

    @rule(data=st.data())
    @precondition(lambda self: self.world.workers)
    def a_task_executor_leaves(self, data: st.DataObject) -> None:
        self.world.stop_worker(data.draw(st.sampled_from(sorted(self.world.workers))))

    @rule(seconds=st.sampled_from((1, 6, 11)))
    def time_passes(self, seconds: int) -> None:
        self.world.tick(seconds)

    @rule()
    def everybody_settles(self) -> None:
        self.world.settle()
        self._check(check_settled)

    @invariant()
    def the_laws_hold(self) -> None:
        self._check(check_always)

    def teardown(self) -> None:
        """Everybody comes back, all jobs are cancelled, and nothing is left over; then the cluster ends."""
        world = self.world
        if world.master is None:
            world.start_master()
        # Nothing tells of a TaskExecutor that died (heartbeats will): whoever is taken for alive comes back.
        for resource_id in sorted(set(world.truth.states["resource_manager"].workers) - set(world.workers)):
            world.start_worker(resource_id, 2)
        world.settle()
        self._check(check_settled)
        for job_id in JOB_IDS:
            world.request(dispatcher.CancelJob(job_id=job_id))
        world.settle()
        world.tick(60)
        world.settle()
        self._check(check_settled)
        self._check(check_idle)
        world.request(dispatcher.ShutDownCluster(reason="the test is over"))
        world.settle()
        world.tick(20)
        world.settle()
        self._check(check_settled)
        assert world.truth.states["resource_manager"].ending.over
        assert not world.workers, f"{list(world.workers)} did not leave"

    def _any(self, data: st.DataObject) -> Process:
        processes = self.world.processes()
        return processes[data.draw(st.integers(0, len(processes) - 1))]

    def _check(self, law: object) -> None:
        try:
            law(self.world)  # type: ignore[operator]
        except AssertionError as error:
            raise AssertionError(
                "\n".join([str(error), *lines(self.world.log), *self.world.illegal])
            ) from None


AnyOrder.TestCase.settings = settings(
    max_examples=int(os.environ.get("EXAMPLES", "150")),
    stateful_step_count=60 if SOAK else 40,
    derandomize=not SOAK,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
test_any_order = AnyOrder.TestCase
