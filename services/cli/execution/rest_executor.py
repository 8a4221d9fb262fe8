"""Submits the program of `tailrace --rest URL run`: the REST server, or the jobmanager's machine, builds its job.

The job and its output are followed by REST.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from ....pipelines.graph.program import BUILD_TIMEOUT_S
from ....schemas.types import EntryPoint
from ...client.client import describe_program
from ...client.rest_client import RestClient
from ...log.rest_log import RequestRefused
from ..exit_codes import CommandFailure, ExitCode
from .cluster_executor import ACCEPT_TIMEOUT_S, Restore
from .submitted_job import JobListener, JobOutcome, SubmittedJob

_PROGRAM_FAULTS: Final = frozenset({400, 409, 413})
"""Statuses of requests whose program can't be built, is rejected, or is too large."""


class RestExecutor:
    """Like ClusterExecutor, for a program that does not run in this process: it has one job."""

    def __init__(
        self, client: RestClient, listener: JobListener, *, detached: bool, restore: Restore
    ) -> None:
        self._client = client
        self._listener = listener
        self._detached = detached
        self._restore = restore
        self._job: SubmittedJob | None = None

    @property
    def outcomes(self) -> list[JobOutcome]:
        """The state of the program's job."""
        return [] if self._job is None else [self._job.outcome]

    def execute_file(
        self,
        path: Path,
        arguments: Sequence[str],
        configuration: Mapping[str, str],
        parallelism: int | None,
    ) -> SubmittedJob:
        """Uploads the program and runs it; returns when its job is accepted. Raises CommandFailure, NoAnswerError,
        RequestRefused, LogUnavailable."""

        def send() -> str:
            try:
                return self._client.run_file(
                    path,
                    arguments,
                    configuration,
                    parallelism,
                    savepoint_path=self._restore.uri,
                    allow_non_restored_state=self._restore.allow_non_restored_state,
                )
            except OSError as error:
                raise CommandFailure(
                    ExitCode.JOB, f"{path} can't be read: {error.strerror}: give the path of a program"
                ) from None

        return self._submit(send, path.stem)

    def execute_entry_point(
        self, entry_point: EntryPoint, parallelism: int | None, job_id: str | None = None
    ) -> SubmittedJob:
        """Like `execute_file`, for a module:function. Raises JobRejectedError besides.

        The cluster chooses the id, and nothing is shipped: the command has refused `job_id` and shipped files.
        """
        assert job_id is None
        assert not entry_point.python_files

        def send() -> str:
            return self._client.submit(
                entry_point,
                parallelism,
                savepoint_path=self._restore.uri,
                allow_non_restored_state=self._restore.allow_non_restored_state,
            )

        return self._submit(send, describe_program(entry_point))

    def close(self) -> None:
        """Ends the use of the job."""
        if self._job is not None:
            self._job.close()

    def _submit(self, send: Callable[[], str], name: str) -> SubmittedJob:
        conversation = self._client.subscribe()
        try:
            job_id = send()
            conversation.add_address(self._client.submitter_of(job_id))
            conversation.follow(job_id)
            accepted = conversation.accepted_at(job_id, ACCEPT_TIMEOUT_S + BUILD_TIMEOUT_S)
        except RequestRefused as error:
            conversation.close()
            if error.status not in _PROGRAM_FAULTS:
                raise
            raise CommandFailure(ExitCode.JOB, f"the program {name} can't be run: {error}") from None
        except BaseException:
            conversation.close()
            raise
        self._job = SubmittedJob(
            self._client,
            conversation,
            accepted,
            name,
            self._listener,
            detached=self._detached,
            # `result` raises the failure: there is no program in between.
            give_up=lambda _: None,
        )
        self._listener.on_accepted(self._job.outcome)
        return self._job
