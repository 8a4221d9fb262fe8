"""The Dispatcher and what it hears; what it owes is folded as it is said."""

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


class Talk:
    """The role's state after all that was said, under one leader."""

    def __init__(self) -> None:
        self.role = Dispatcher()
        self.state: DispatcherState = self.role.initial(OWN)
        self.offset = -1
        self.lead()

    def hear(self, body: Body, sender: str = CLIENT, recipient: str = OWN, cause: int | None = None) -> int:
        """Folds an event; returns its offset."""
        self.offset += 1
        said = replace(header(sender, recipient), cause=cause)
        self.state = self.role.evolve(self.state, Record(self.offset, said, body))
        return self.offset

    def lead(self) -> None:
        """Another leader."""
        self.hear(everyone.LeaderElected(role=OWN, epoch=self.offset + 2, address="a", session="s"), OWN, "*")

    def owed(self) -> list[OutgoingEvent]:
        return self.role.decide(self.state, 0)

    def settle(self) -> list[Body]:
        """All that is owed is said, until nothing is; returns it."""
        said: list[Body] = []
        while owed := self.owed():
            for each in owed:
                self.say(each)
                said.append(each.body)
            assert len(said) < 1_000, "it talks without end"
        return said

    def say(self, owed: OutgoingEvent) -> None:
        self.hear(owed.body, OWN, owed.recipient, owed.cause)

    def submit(self, job_id: str = "j", job_graph: JobGraph | None = None) -> None:
        self.hear(dispatcher.SubmitJob(job_id=job_id, job_graph=job_graph or graph()))

    def build(self, job_id: str = "j") -> None:
        """A program is submitted."""
        self.hear(dispatcher.SubmitJob(job_id=job_id, entry_point=EntryPoint(target="a:b", arguments=())))

    def cancel(self, job_id: str = "j", sender: str = CLIENT) -> int:
        return self.hear(dispatcher.CancelJob(job_id=job_id), sender)

    def shut_down(self, *, suspend: bool = False) -> None:
        self.hear(dispatcher.ShutDownCluster(reason="asked to", suspend=suspend))

    def reach(
        self, status: JobStatus, job_id: str = "j", accumulators: Mapping[str, float] | None = None
    ) -> None:
        """The JobMaster says how the job has ended."""
        body = dispatcher.JobReachedTerminalState(
            job_id=job_id, status=status, accumulators=accumulators or {}
        )
        self.hear(body, f"job_master/{job_id}")

    def terminate(self) -> None:
        """The cluster is over."""
        self.hear(everyone.ClusterTerminated(reason="asked to"), "resource_manager", "*")

    def phase(self, job_id: str = "j") -> Phase:
        return self.state.jobs[job_id].phase


def in_phase(phase: Phase) -> Talk:
    """Job j in a phase, with nothing said that the phase owes."""
    talk = Talk()
    if phase is Phase.BUILDING:
        talk.build()
        return talk
    talk.submit()
    if phase is Phase.ADMITTED:
        return talk
    talk.hear(client.JobAccepted(job_id="j", name=""), OWN, CLIENT)
    if phase is Phase.ACCEPTED:
        return talk
    talk.hear(job_master.StartJob(job_id="j", job_graph=graph()), OWN, "job_master/j")
    match phase:
        case Phase.CANCEL_REQUESTED:
            talk.cancel()
        case Phase.SUSPEND_REQUESTED:
            talk.shut_down(suspend=True)
        case Phase.SUSPENDED | Phase.RESUME_REQUESTED:
            talk.shut_down(suspend=True)
            talk.settle()
            talk.reach(JobStatus.SUSPENDED)
            if phase is Phase.RESUME_REQUESTED:
                talk.settle()
                talk.terminate()
                talk.lead()
        case Phase.TERMINATED | Phase.ENDED:
            talk.reach(JobStatus.FINISHED)
            if phase is Phase.ENDED:
                talk.settle()
    assert talk.phase() is phase
    return talk


def names(said: list[Body]) -> list[str]:
    """JobAccepted, StartJob, ..."""
    return [each.AVRO_NAME.rpartition(".")[2] for each in said]
