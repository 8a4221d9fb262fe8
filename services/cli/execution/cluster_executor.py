"""The PipelineExecutor of `tailrace run`: gives a program's graphs to the cluster. Nothing in the services but the
command line knows pipelines.api."""

from __future__ import annotations

from collections.abc import Mapping

from ....pipelines.graph.errors import ProgramError
from ....pipelines.graph.job_options import STATE_RECOVERY_PATH
from ....pipelines.graph.program import BUILD_TIMEOUT_S
from ....schemas.event import Record
from ....schemas.types import EntryPoint, JobGraph
from ...client import Client, ClusterSubscription, JobRejectedError
from ...client.log_subscription import not_accepted_error
from ...configuration.role_options import job_configuration
from .submitted_job import JobListener, JobOutcome, SubmittedJob

ACCEPT_TIMEOUT_S = 30.0


class ClusterExecutor:
    """`failure` is why a job could not be given over, or what kept its end from being seen.

    `savepoint_path`, a URI: what its jobs begin with; None: what their configuration says.
    """

    def __init__(
        self,
        client: Client,
        listener: JobListener,
        *,
        detached: bool,
        savepoint_path: str | None = None,
        allow_non_restored_state: bool = False,
    ) -> None:
        self._client = client
        self._listener = listener
        self._detached = detached
        self._savepoint_path = savepoint_path
        self._allow_non_restored_state = allow_non_restored_state
        self._jobs: list[SubmittedJob] = []
        self.failure: Exception | None = None

    @property
    def outcomes(self) -> list[JobOutcome]:
        """What became of the jobs of the program, as far as anybody asked, in the order in which they came."""
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
        """As `execute`, of a program that the jobmanager runs. Raises JobRejectedError, NoAnswer, LogUnavailable."""
        return self._submit(entry_point, parallelism, job_id, ACCEPT_TIMEOUT_S + BUILD_TIMEOUT_S)

    def close(self) -> None:
        """The program has ended: people are told what becomes of the jobs that it did not wait for."""
        for job in self._jobs:
            job.close()

    def _submit(
        self, what: JobGraph | EntryPoint, parallelism: int | None, wanted_id: str | None, timeout: float
    ) -> SubmittedJob:
        conversation = self._client.subscribe()
        try:
            if isinstance(what, JobGraph):
                what = self._with_max_parallelism(what, conversation.configuration)
            job_id = self._client.submit(
                what,
                parallelism,
                wanted_id,
                savepoint_path=self._savepoint_path,
                allow_non_restored_state=self._allow_non_restored_state,
            )
            conversation.follow(job_id)
            if isinstance(what, EntryPoint):
                accepted = self._await_acceptance(conversation, job_id, timeout)
            else:
                accepted = conversation.accepted_at(job_id, timeout)
        except BaseException:
            conversation.close()
            raise
        job = SubmittedJob(
            self._client,
            conversation,
            accepted,
            self._listener,
            detached=self._detached,
            give_up=self._give_up,
        )
        self._jobs.append(job)
        self._listener.on_accepted(job.outcome)
        return job

    def _await_acceptance(self, conversation: ClusterSubscription, job_id: str, timeout: float) -> Record:
        """People are told meanwhile how many programs are to be built first."""
        from .building_queue import BuildingQueue, wait_for_acceptance

        queue = BuildingQueue(self._client.configuration)
        found = wait_for_acceptance(
            job_id,
            lambda seconds: conversation.wait_for_acceptance(job_id, seconds),
            lambda: queue.programs_before(job_id),
            self._listener.on_message,
            timeout,
        )
        if found is None:
            raise not_accepted_error(job_id, timeout)
        return found

    def _with_max_parallelism(self, graph: JobGraph, cluster: Mapping[str, str]) -> JobGraph:
        """With the key groups of what the job begins with, as far as that can be read from here. `cluster`: by which
        options the cluster goes."""
        uri = self._savepoint_path or STATE_RECOVERY_PATH.of(job_configuration(cluster, graph.configuration))
        if uri is None:
            return graph
        from ....pipelines.checkpoint.compatibility import with_key_groups_at

        return with_key_groups_at(uri, graph)

    def _give_up(self, failure: Exception) -> None:
        self.failure = failure
