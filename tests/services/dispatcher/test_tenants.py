"""The laws of tenants: quotas hold in every history, and no request of a tenant concerns a job of another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.pipelines.graph.execution_graph import ExecutionGraph, required_slots
from tailrace.schemas import client, dispatcher, everyone
from tailrace.schemas.body import Body
from tailrace.schemas.event import Event, Record
from tailrace.schemas.types import EntryPoint, JobStatus, Origin
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.dispatcher.admission import OPERATOR_REQUESTS, REQUESTS, check_allowed
from tailrace.services.dispatcher.checkpoints import DisposeSavepoint
from tailrace.services.dispatcher.index_validation import index_errors
from tailrace.services.dispatcher.state import DispatcherState, Job, Phase
from tailrace.services.log import Undecodable

from ..simulated_cluster.cluster import graph, header
from ..simulated_cluster.invariants import check_tenants
from .log_builder import OWN, Driver

PROGRAM = EntryPoint(target="a:b", arguments=())
MAX_JOBS, MAX_SLOTS = 3, 5
CONFIGURATION = {
    "dispatcher.tenants": "pay;search",
    "dispatcher.tenant.pay.max-jobs": str(MAX_JOBS),
    "dispatcher.tenant.pay.max-slots": str(MAX_SLOTS),
    "dispatcher.tenant.search.job-name-prefix": "search-",
    "dispatcher.max-jobs-per-client": "4",
}
TENANTS = ("", "pay", "search")
JOBS = ("a", "b", "c", "d", "e", "f")


class Requests(Driver):
    """A Dispatcher with two tenants. It records the tenant of each request, by its offset."""

    def __init__(self) -> None:
        super().__init__()
        self.receive(everyone.ConfigurationChanged(configuration=CONFIGURATION), OWN, "*")
        self.tenants: dict[int, str] = {}
        self.records: list[Record] = []
        self.answers: list[OutgoingEvent] = []

    def ask(self, tenant: str, body: Body, sender: str = "client/same") -> int:
        """Folds a request that was admitted from the topic of a tenant."""
        self.offset += 1
        topic = f"c.submissions.{tenant}" if tenant else "c.submissions"
        origin = Origin(topic=topic, partition=0, offset=self.offset, tenant=tenant)
        self.fold(Record(self.offset, replace(header(sender, OWN), origin=origin), body))
        self.tenants[self.offset] = tenant
        return self.offset

    def fold(self, record: Record) -> None:
        self.state = self.role.evolve(self.state, record)
        self.records.append(record)

    def send(self, owed: OutgoingEvent) -> None:
        self.offset += 1
        sent = replace(header(OWN, owed.recipient), cause=owed.cause, tenant=owed.tenant)
        self.fold(Record(self.offset, sent, owed.body))
        self.answers.append(owed)

    def submit_of(self, tenant: str, job_id: str, parallelism: int = 1, name: str | None = None) -> int:
        job_graph = replace(graph(parallelism), name=name or f"{tenant}-{job_id}")
        return self.ask(tenant, dispatcher.SubmitJob(job_id=job_id, job_graph=job_graph))

    def reason(self, job_id: str) -> str:
        """Returns why the last request about the job was rejected."""
        bodies = [owed.body for owed in self.answers]
        found = [
            body.reason
            for body in bodies
            if isinstance(body, client.JobRejected | client.CancelJobRejected | client.CheckpointFailed)
            and body.job_id == job_id
        ]
        return found[-1]


def live(state: DispatcherState, tenant: str) -> list[Job]:
    return [job for job in state.jobs.values() if job.tenant == tenant and job.phase is not Phase.ENDED]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from(TENANTS), st.sampled_from(JOBS), st.integers(1, 3)),
        st.tuples(
            st.sampled_from(["program", "cancel", "checkpoint", "savepoint", "dispose"]),
            st.sampled_from(TENANTS),
            st.sampled_from(JOBS),
            st.just(0),
        ),
        st.tuples(
            st.sampled_from(["built", "end", "settle", "decide"]),
            st.just(""),
            st.sampled_from(JOBS),
            st.integers(1, 3),
        ),
    ),
    max_size=50,
)


def play(steps: list[tuple[str, str, str, int]]) -> Requests:
    """Plays a history; checks the quotas and the indexes after each event."""
    driver = Requests()
    for step, tenant, job_id, number in steps:
        job = driver.state.jobs.get(job_id)
        match step:
            case "submit":
                driver.submit_of(tenant, job_id, number)
            case "program":
                driver.ask(tenant, dispatcher.SubmitJob(job_id=job_id, entry_point=PROGRAM))
            case "cancel":
                driver.ask(tenant, dispatcher.CancelJob(job_id=job_id))
            case "checkpoint":
                driver.ask(tenant, dispatcher.TriggerCheckpoint(job_id=job_id))
            case "savepoint":
                driver.ask(tenant, dispatcher.StopWithSavepoint(job_id=job_id))
            case "dispose":
                driver.ask(tenant, dispatcher.DisposeSavepoint(path="/s"))
            case "built" if job is not None and job.phase is Phase.BUILDING:
                body = dispatcher.JobGraphBuilt(job_id=job_id, job_graph=graph(number))
                driver.receive(body, OWN, OWN, cause=job.submission)
            case "end" if job is not None and job.phase is Phase.RUNNING:
                driver.reach(JobStatus.FINISHED, job_id)
            case "settle":
                driver.settle()
            case "decide":
                for owed in driver.owed():
                    driver.send(owed)
                    check_quotas(driver.state)
            case _:
                pass
        check_quotas(driver.state)
    driver.settle()
    check_quotas(driver.state)
    return driver


def check_quotas(state: DispatcherState) -> None:
    jobs = live(state, "pay")
    assert len(jobs) <= MAX_JOBS
    assert sum(required_slots(job.graph) for job in jobs if _counts(job) and job.graph) <= MAX_SLOTS
    assert sum(job.slots for job in jobs) <= MAX_SLOTS
    assert len(live(state, "search")) <= 4
    assert not list(index_errors(state))


def _counts(job: Job) -> bool:
    """Whether the job's graph was accepted."""
    return job.phase not in (Phase.BUILDING, Phase.BUILT)


@given(STEPS)
def test_quotas_hold_in_every_history_and_all_requests_are_answered(
    steps: list[tuple[str, str, str, int]],
) -> None:
    driver = play(steps)
    waiting = [job_id for job_id, job in driver.state.jobs.items() if job.phase is Phase.BUILDING]
    assert all(getattr(each, "job_id", None) in waiting for each in driver.state.requests.values())


@given(STEPS)
def test_request_of_tenant_concerns_its_own_jobs_and_its_answer_is_for_its_clients_only(
    steps: list[tuple[str, str, str, int]],
) -> None:
    driver = play(steps)
    check_tenants(driver.records)
    for instruction in driver.role.instructions(driver.state):
        if isinstance(instruction, DisposeSavepoint):
            assert instruction.tenant == driver.tenants[instruction.request]


@given(STEPS)
def test_requests_of_other_tenants_change_nothing_for_jobs_of_tenant(
    steps: list[tuple[str, str, str, int]],
) -> None:
    """What becomes of a tenant's jobs is the same with and without requests of others about them."""

    def outcome(played: list[tuple[str, str, str, int]]) -> dict[str, tuple[Phase, int]]:
        jobs = live(play(played).state, "pay")
        return {job.job_id: (job.phase, job.slots) for job in jobs}

    foreign = ("program", "cancel", "checkpoint", "savepoint", "dispose", "submit")
    of_tenant = [step for step in steps if step[1] == "pay" or step[0] not in foreign]
    with_others = [
        step
        for each in of_tenant
        for step in (
            each,
            ("cancel", "search", each[2], 0),
            ("savepoint", "search", each[2], 0),
            ("dispose", "search", each[2], 0),
        )
    ]
    assert outcome(with_others) == outcome(of_tenant)


@given(STEPS)
def test_replay_gives_same_state(steps: list[tuple[str, str, str, int]]) -> None:
    first, second = play(steps), play(steps)
    assert first.state == second.state


def test_jobs_and_slots_above_quota_are_rejected_with_option() -> None:
    driver = Requests()
    driver.submit_of("pay", "a", 3)
    driver.submit_of("pay", "b", 3)
    driver.settle()
    assert driver.reason("b") == (
        "it requires 3 slots, and the jobs of tenant pay have 3 of the 5 that dispatcher.tenant.pay.max-slots allows: "
        "submit it when some have ended, or raise the option"
    )
    for job_id in "cde":
        driver.submit_of("pay", job_id)
    driver.settle()
    assert sorted(driver.state.jobs) == ["a", "c", "d"]
    assert driver.reason("e").startswith(
        "tenant pay has 3 jobs, and dispatcher.tenant.pay.max-jobs allows 3: "
    )
    driver.submit_of("", "f", 3)
    driver.settle()
    assert "f" in driver.state.jobs


def test_quota_of_tenant_counts_all_its_clients_and_no_client_of_that_name() -> None:
    driver = Requests()
    for number in range(5):
        body = dispatcher.SubmitJob(job_id=f"s{number}", job_graph=replace(graph(), name="search-x"))
        driver.ask("search", body, f"client/{number}")
    driver.submit_of("", "x")
    driver.settle()
    assert driver.reason("s4").startswith(
        "tenant search has 4 jobs, and dispatcher.max-jobs-per-client allows 4"
    )
    assert driver.state.jobs_of["client/same"] == 1


def test_job_without_prefix_of_tenant_is_rejected_also_if_program_gives_name() -> None:
    driver = Requests()
    driver.submit_of("search", "a", name="other")
    driver.ask("search", dispatcher.SubmitJob(job_id="b", entry_point=PROGRAM))
    driver.settle()
    driver.built("b")
    driver.settle()
    assert driver.reason("a") == (
        "the names of jobs of tenant search begin with 'search-', and this one is 'other': rename the job"
    )
    assert driver.reason("b").startswith("the names of jobs of tenant search begin with 'search-'")
    assert not driver.state.jobs


def test_job_id_with_name_of_tenant_is_for_that_tenant_only() -> None:
    driver = Requests()
    for tenant, is_accepted in (("", False), ("search", False), ("pay", True)):
        driver.submit_of(tenant, "pay_a")
        driver.settle()
        assert ("pay_a" in driver.state.jobs) == is_accepted
    assert driver.reason("pay_a") == (
        "job id pay_a begins with 'pay_', as those of tenant pay only do: choose another"
    )


def test_job_of_other_tenant_is_unknown_to_tenant() -> None:
    driver = Requests()
    driver.submit_of("pay", "a")
    driver.settle()
    driver.ask("search", dispatcher.CancelJob(job_id="a"))
    driver.settle()
    assert driver.reason("a") == "job a is unknown"
    driver.ask("search", dispatcher.TriggerSavepoint(job_id="a"))
    driver.settle()
    assert driver.reason("a").startswith("job a is unknown")
    driver.ask("pay", dispatcher.CancelJob(job_id="a"))
    driver.settle()
    assert driver.phase("a") is Phase.CANCELLING


def test_request_without_tenant_concerns_jobs_of_tenants() -> None:
    driver = Requests()
    driver.submit_of("pay", "a")
    driver.settle()
    driver.ask("", dispatcher.CancelJob(job_id="a"))
    driver.settle()
    assert driver.phase("a") is Phase.CANCELLING


def test_tenant_that_is_not_named_any_more_submits_nothing() -> None:
    driver = Requests()
    driver.submit_of("gone", "a")
    driver.settle()
    assert driver.reason("a") == "dispatcher.tenants does not name tenant gone any more"


@pytest.mark.parametrize(
    "body", [dispatcher.ShutDownCluster(reason="r"), dispatcher.RaiseFeatureLevel(level=1)]
)
def test_request_about_cluster_is_refused_to_tenant(body: Body) -> None:
    event = Event(header("client/me", OWN), body)
    check_allowed(event)
    with pytest.raises(Undecodable, match="is about the whole cluster, and tenant pay may not send it"):
        check_allowed(event, "pay")
    assert isinstance(body, OPERATOR_REQUESTS)
    assert set(OPERATOR_REQUESTS) < set(REQUESTS)


@pytest.mark.parametrize("parallelism", [1, 2, 7])
def test_required_slots_are_those_of_execution_graph(parallelism: int) -> None:
    expected = ExecutionGraph.attach("", graph(parallelism)).required_slots()
    assert required_slots(graph(parallelism)) == expected == parallelism
