"""The results of simulated masters' effects: topics are created, programs give a fixed JobGraph, storage is a table.

The functions are pure except for that table. The caller decides when a result arrives, and from which process. A result
has the same cause as in a real cluster.
"""

from __future__ import annotations

from collections.abc import Callable

from ...schemas import dispatcher, everyone, job_master
from ...schemas.body import Body
from ...schemas.event import EVERYONE
from ...schemas.types import JobGraph
from ..core.role import Instruction, OutgoingEvent
from ..dispatcher.job_store import DeleteJobTopics
from ..dispatcher.role import BuildJobGraph, RaiseFeatureLevel
from ..job_master.instructions import CreateChannels, DeleteChannels
from .checkpoint_storage import CHECKPOINT_INSTRUCTIONS, SimulatedStorage

MASTER_INSTRUCTIONS = (
    CreateChannels
    | DeleteChannels
    | BuildJobGraph
    | DeleteJobTopics
    | RaiseFeatureLevel
    | CHECKPOINT_INSTRUCTIONS
)
"""The instructions that `perform` takes."""
BuildProgram = Callable[[BuildJobGraph], JobGraph | str]
"""Returns the graph that a program builds, or why it fails."""


class NotSimulated(TypeError):
    """The simulation does not know this instruction."""

    def __init__(self, instruction: Instruction) -> None:
        super().__init__(f"not simulated: {instruction!r}")


def reject_programs(instruction: BuildJobGraph) -> JobGraph | str:
    """A BuildProgram that runs no program."""
    return f"{instruction.entry_point.target} is not run in a simulation"


def perform(
    role_address: str,
    instruction: Instruction,
    storage: SimulatedStorage,
    build: BuildProgram = reject_programs,
    *,
    storage_fails: bool = False,
) -> OutgoingEvent:
    """Returns the result of an instruction of a Dispatcher or a JobMaster. Raises NotSimulated for others.

    `storage_fails`: the storage rejects the write.
    """
    body: Body
    match instruction:
        case CreateChannels(job_id=job_id, cause=cause):
            return OutgoingEvent(role_address, job_master.ChannelsCreated(job_id=job_id), cause)
        case DeleteChannels(job_id=job_id, cause=cause):
            return OutgoingEvent(role_address, job_master.ChannelsDeleted(job_id=job_id), cause)
        case BuildJobGraph(job_id=job_id, cause=cause):
            built = build(instruction)
            if isinstance(built, str):
                body = dispatcher.JobGraphFailed(job_id=job_id, reason=built)
            else:
                body = dispatcher.JobGraphBuilt(job_id=job_id, job_graph=built)
            return OutgoingEvent(role_address, body, cause)
        case DeleteJobTopics(job_ids=job_ids, cause=cause):
            return OutgoingEvent(role_address, dispatcher.JobsForgotten(job_ids=job_ids), cause)
        case RaiseFeatureLevel(level=level, cause=cause):
            return OutgoingEvent(EVERYONE, everyone.FeatureLevelRaised(level=level), cause)
        case _ if isinstance(instruction, CHECKPOINT_INSTRUCTIONS):
            cause = instruction.request if hasattr(instruction, "request") else instruction.cause
            return OutgoingEvent(role_address, storage.perform(instruction, fails=storage_fails), cause)
        case _:
            raise NotSimulated(instruction)
