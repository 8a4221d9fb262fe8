"""The Dispatcher and its inputs; the events that it requires are folded when they are sent."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from tailrace.schemas import client, dispatcher, everyone, job_master
from tailrace.schemas.body import Body
from tailrace.schemas.event import Record
from tailrace.schemas.types import EntryPoint, JobGraph, JobStatus
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.dispatcher.state import DispatcherState, Phase

from ..simulated_cluster.cluster import graph, header

OWN = "dispatcher"
CLIENT = "client/me"


class Driver:
    """The state of the Dispatcher after all events so far, under one leader."""

    def __init__(self) -> None:
        self.role = Dispatcher()
        self.state: DispatcherState = self.role.initial(OWN)
        self.offset = -1
        self.lead()

    def receive(
        self,
        body: Body,
        sender: str = CLIENT,
        recipient: str = OWN,
        cause: int | None = None,
        decided_at: int | None = None,
    ) -> int:
        """Folds an event; returns its offset."""
        self.offset += 1
        output = replace(header(sender, recipient), cause=cause, decided_at=decided_at)
        self.state = self.role.evolve(self.state, Record(self.offset, output, body))
        return self.offset

    def lead(self, decided_at: int | None = None) -> None:
        """Folds the claim of another leader, which has read the log up to an offset (None: to its end)."""
        claim = everyone.LeaderElected(role=OWN, epoch=self.offset + 2, address="a", session="s")
        self.receive(claim, OWN, "*", decided_at=decided_at)

    def owed(self) -> list[OutgoingEvent]:
        return self.role.decide(self.state, 0)

    def settle(self) -> list[Body]:
        """Sends all required events until there are none; returns them."""
        events: list[Body] = []
        while owed := self.owed():
            for event in owed:
                self.send(event)
                events.append(event.body)
            assert len(events) < 1_000, "it talks without end"
        return events

    def send(self, owed: OutgoingEvent) -> None:
        self.receive(owed.body, OWN, owed.recipient, owed.cause)

    def submit(self, job_id: str = "j", job_graph: JobGraph | None = None) -> None:
        self.receive(dispatcher.SubmitJob(job_id=job_id, job_graph=job_graph or graph()))

    def build(self, job_id: str = "j") -> None:
        """Submits a program, and accepts it."""
        self.receive(dispatcher.SubmitJob(job_id=job_id, entry_point=EntryPoint(target="a:b", arguments=())))
        assert names(self.settle()) == ["ProgramAccepted"]

    def built(self, job_id: str = "j", failure: str | None = None) -> None:
        """Folds the result of the program."""
        body: Body = dispatcher.JobGraphBuilt(job_id=job_id, job_graph=graph())
        if failure is not None:
            body = dispatcher.JobGraphFailed(job_id=job_id, reason=failure)
        self.receive(body, OWN, OWN, cause=self.state.jobs[job_id].submission)

    def cancel(self, job_id: str = "j", sender: str = CLIENT) -> int:
        return self.receive(dispatcher.CancelJob(job_id=job_id), sender)

    def shut_down(self, *, suspend: bool = False) -> None:
        self.receive(dispatcher.ShutDownCluster(reason="asked to", suspend=suspend))

    def reach(
        self, status: JobStatus, job_id: str = "j", accumulators: Mapping[str, float] | None = None
    ) -> None:
        """Folds the JobMaster's report of the job's end."""
        body = dispatcher.JobReachedTerminalState(
            job_id=job_id, status=status, accumulators=accumulators or {}
        )
        self.receive(body, f"job_master/{job_id}")

    def terminate(self) -> None:
        """Ends the cluster."""
        self.receive(everyone.ClusterTerminated(reason="asked to"), "resource_manager", "*")

    def phase(self, job_id: str = "j") -> Phase:
        return self.state.jobs[job_id].phase


def in_phase(phase: Phase) -> Driver:
    """Returns the state with job j in a phase, before the events that the phase requires."""
    driver = Driver()
    if phase in (Phase.BUILDING, Phase.BUILT, Phase.BUILD_FAILED):
        driver.build()
        if phase is not Phase.BUILDING:
            driver.built(failure="it raised" if phase is Phase.BUILD_FAILED else None)
        return driver
    driver.submit()
    driver.receive(client.JobAccepted(job_id="j", name=""), OWN, CLIENT, cause=driver.offset)
    if phase is Phase.ACCEPTED:
        return driver
    driver.receive(job_master.StartJob(job_id="j", job_graph=graph()), OWN, "job_master/j")
    match phase:
        case Phase.CANCELLING:
            driver.cancel()
            driver.settle()
        case Phase.SUSPENDING | Phase.SUSPENDED:
            driver.shut_down(suspend=True)
            driver.settle()
            if phase is Phase.SUSPENDED:
                driver.reach(JobStatus.SUSPENDED)
        case Phase.TERMINATED | Phase.ENDED:
            driver.reach(JobStatus.FINISHED)
            if phase is Phase.ENDED:
                driver.settle()
    assert driver.phase() is phase
    return driver


def names(bodies: list[Body]) -> list[str]:
    """Returns the names of the events: JobAccepted, StartJob, ..."""
    return [event.AVRO_NAME.rpartition(".")[2] for event in bodies]
