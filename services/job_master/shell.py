"""The JobMaster's shell: creates and deletes the topics that the job's tasks need."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import structlog
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ...pipelines.graph.physical_plan import temporary_topics, topics
from ...schemas import job_master
from ...schemas.body import Body
from ..log import LogUnavailable
from ..log.topics import KEEP_FOR_EVER, create_topics, delete_topics
from ..roles import Instruction, Owed, Say
from .instructions import CreateChannels, DeleteChannels

_log = structlog.get_logger(__name__)


class JobMasterShell:
    """One for all JobMasters of a process."""

    def __init__(self, say: Say, admin: AdminClient, cluster: str) -> None:
        self._say = say
        self._admin = admin
        self._cluster = cluster
        self._begun: set[str] = set()
        self._workers = ThreadPoolExecutor(4, thread_name_prefix="channels")

    def obey(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        for instruction in instructions:
            if instruction.key not in self._begun:
                self._begun.add(instruction.key)
                self._workers.submit(self._do, role_address, instruction)

    def close(self) -> None:
        self._workers.shutdown()

    def _do(self, role_address: str, instruction: Instruction) -> None:
        body: Body
        match instruction:
            case CreateChannels(job_id=job_id, job_graph=graph, cause=cause):
                wanted = topics(self._cluster, job_id, graph)
                try:
                    create_topics(
                        self._admin,
                        [NewTopic(name, count, -1, config=KEEP_FOR_EVER) for name, count in wanted.items()],
                    )
                    body = job_master.ChannelsCreated(job_id=job_id)
                except LogUnavailable as error:
                    body = job_master.ChannelsFailed(job_id=job_id, reason=str(error))
            case DeleteChannels(job_id=job_id, job_graph=graph, cause=cause):
                try:
                    delete_topics(self._admin, list(temporary_topics(self._cluster, job_id, graph)))
                except LogUnavailable as error:
                    # The instruction stands: the next leader's shell tries again.
                    _log.warning("left channels behind", job=job_id, error=str(error))
                    return
                body = job_master.ChannelsDeleted(job_id=job_id)
            case _:
                raise TypeError(f"the JobMaster's shell does not know {instruction!r}")
        self._say(role_address, Owed(role_address, body, cause))
