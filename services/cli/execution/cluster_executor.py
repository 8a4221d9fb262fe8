"""The PipelineExecutor of `tailrace run`: submits a program's graphs to the cluster."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ....pipelines.checkpoint.compatibility import with_key_groups_at
from ....pipelines.graph.errors import ProgramError
from ....pipelines.graph.job_options import STATE_RECOVERY_PATH
from ....pipelines.graph.physical_plan import has_output
from ....pipelines.graph.program import BUILD_TIMEOUT_S
from ....schemas.event import Record
from ....schemas.types import EntryPoint, JobGraph
from ...client import Client, JobRejectedError, Subscription
from ...client.client import describe_program
from ...client.subscription import not_accepted_error
from ...configuration.role_options import job_configuration
from .building_queue import BuildingQueue, wait_for_acceptance
from .submitted_job import JobListener, JobOutcome, SubmittedJob

ACCEPT_TIMEOUT_S = 30.0


class Restore(msgspec.Struct, frozen=True):
    """What jobs restore: the savepoint or checkpoint at `uri`; None: the one that their configuration names."""

    uri: str | None = None
    allow_non_restored_state: bool = False


class ClusterExecutor:
    """`failure` is why a job could not be submitted, or why its end was not seen."""

    def __init__(
        self,
        client: Client,
        listener: JobListener,
        *,
        detached: bool,
        restore: Restore | None = None,
    ) -> None:
        self._client = client
        self._listener = listener
        self._detached = detached
        self._restore = restore or Restore()
        self._jobs: list[SubmittedJob] = []
        self.failure: Exception | None = None

    @property
    def outcomes(self) -> list[JobOutcome]:
        """The states of the program's jobs, in the order of their submission."""
        return [job.outcome for job in self._jobs]

    def execute(self, job_graph: JobGraph) -> SubmittedJob:
        """Returns when the job is accepted. Raises ProgramError."""
        try:
            return self._submit(job_graph, None, None, ACCEPT_TIMEOUT_S)
        except JobRejectedError as error:
            self.failure = error
            raise ProgramError(f"job {error.job_id} was rejected: {error.reason}") from error
        except Exception as error:
            # Inside the program this would look like the program's own mistake.
            self.failure = error
            raise

    def execute_entry_point(
        self, entry_point: EntryPoint, parallelism: int | None, job_id: str | None
    ) -> SubmittedJob:
        """Like `execute`, for a program that the jobmanager runs. Raises JobRejectedError, NoAnswerError,
        LogUnavailable."""
        return self._submit(entry_point, parallelism, job_id, ACCEPT_TIMEOUT_S + BUILD_TIMEOUT_S)

    def close(self) -> None:
        """Ends the use of all jobs: the program has ended."""
        for job in self._jobs:
            job.close()

    def _submit(
        self, what: JobGraph | EntryPoint, parallelism: int | None, wanted_id: str | None, timeout_s: float
    ) -> SubmittedJob:
        conversation = self._client.subscribe_to_answers()
        try:
            if isinstance(what, JobGraph):
                what = self._with_max_parallelism(what, conversation.configuration)
            job_id = self._client.submit(
                what,
                parallelism,
                wanted_id,
                savepoint_path=self._restore.uri,
                allow_non_restored_state=self._restore.allow_non_restored_state,
            )
            conversation.follow(job_id)
            if isinstance(what, EntryPoint):
                accepted = self._await_acceptance(conversation, job_id, timeout_s)
            else:
                accepted = conversation.accepted_at(job_id, timeout_s)
        except BaseException:
            conversation.close()
            raise
        job = SubmittedJob(
            self._client,
            conversation,
            accepted,
            what.name if isinstance(what, JobGraph) else describe_program(what),
            self._listener,
            detached=self._detached,
            prints=not isinstance(what, JobGraph) or has_output(what),
            give_up=self._give_up,
        )
        self._jobs.append(job)
        self._listener.on_accepted(job.outcome)
        return job

    def _await_acceptance(self, conversation: Subscription, job_id: str, timeout_s: float) -> Record:
        """Shows meanwhile how many programs are built first."""
        queue = BuildingQueue(self._client.configuration)
        found = wait_for_acceptance(
            job_id,
            lambda seconds: conversation.wait_for_acceptance(job_id, seconds),
            lambda: queue.programs_before(job_id),
            self._listener.on_message,
            timeout_s,
        )
        if found is None:
            raise not_accepted_error(job_id, timeout_s)
        return found

    def _with_max_parallelism(self, graph: JobGraph, cluster: Mapping[str, str]) -> JobGraph:
        """Returns the graph with the key groups of what the job restores, if that can be read from here. `cluster`: the
        cluster's options."""
        uri = self._restore.uri or STATE_RECOVERY_PATH.of(job_configuration(cluster, graph.configuration))
        if uri is None:
            return graph
        return with_key_groups_at(uri, graph)

    def _give_up(self, failure: Exception) -> None:
        self.failure = failure
