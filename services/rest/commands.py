"""The table of endpoints that write: Flink's, and tailrace's own below /api/v1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from .endpoint import Answer, Endpoint, Parameter, Parameters
from .errors import Conflict, Forbidden, NotFound
from .flink import operations
from .flink.applications import job_parameters
from .flink.endpoints import path_parameters
from .flink.jobs import VertexRequirements
from .flink.plan import JobPlan
from .operator_requests import RequestSender, operator_commands
from .principal import Role
from .program_requests import (
    PLAN_QUERY,
    RUN_QUERY,
    PlanBody,
    ProgramFiles,
    RunBody,
    RunResult,
    UploadResult,
)
from .uploads import UploadedFile


class Commands(RequestSender, Protocol):
    """What a server asks the cluster to do: a `Requests`. Arguments: parameters, body, Idempotency-Key or None."""

    def cancel(self, parameters: Parameters, _body: object, key: str | None, /) -> Answer:
        """Cancels a job."""
        ...

    def stop(self, parameters: Parameters, body: operations.StopBody, key: str | None, /) -> Answer:
        """Stops a job with a savepoint."""
        ...

    def savepoint(self, parameters: Parameters, body: operations.SavepointBody, key: str | None, /) -> Answer:
        """Takes a savepoint."""
        ...

    def checkpoint(
        self, parameters: Parameters, body: operations.CheckpointBody, key: str | None, /
    ) -> Answer:
        """Takes a checkpoint."""
        ...

    def require_resources(
        self, parameters: Parameters, body: Mapping[str, VertexRequirements], key: str | None, /
    ) -> Answer:
        """Changes the parallelism of vertices."""
        ...

    def rescale(self, parameters: Parameters, body: operations.RescaleBody, key: str | None, /) -> Answer:
        """Changes the parallelism of a job."""
        ...

    def dispose(self, _parameters: Parameters, body: operations.DisposalBody, key: str | None, /) -> Answer:
        """Deletes a savepoint."""
        ...

    def shut_down(self, _parameters: Parameters, _body: object, key: str | None, /) -> Answer:
        """Ends the cluster."""
        ...

    def submit(self, _parameters: Parameters, body: operations.SubmissionBody, key: str | None, /) -> Answer:
        """Submits a program."""
        ...


_JOB_CANCEL = "/jobs/{jobid}/yarn-cancel"
_APPLICATION_CANCEL = "/applications/{applicationid}/cancel"
_JOB = "/jobs/{jobid}"


def flink_commands(commands: Commands) -> list[Endpoint]:
    """Returns Flink's endpoints that write."""
    trigger = operations.TriggerResponse
    mode = Parameter("mode", operations.TerminationMode, "cancel, which is the default.")
    return [
        Endpoint("DELETE", "/cluster", command=commands.shut_down, response=operations.Empty),
        Endpoint(
            "POST",
            "/savepoint-disposal",
            command=commands.dispose,
            body=operations.DisposalBody,
            response=trigger,
            needs_body=True,
            role=Role.SUBMITTER,
        ),
        Endpoint(
            "GET",
            _JOB_CANCEL,
            path_parameters(_JOB_CANCEL),
            command=commands.cancel,
            response=operations.Empty,
            status=202,
            errors=(NotFound, Conflict, Forbidden),
            role=Role.SUBMITTER,
        ),
        Endpoint(
            "POST",
            _APPLICATION_CANCEL,
            path_parameters(_APPLICATION_CANCEL),
            command=lambda parameters, body, key: commands.cancel(job_parameters(parameters), body, key),
            response=operations.Empty,
            status=202,
            errors=(NotFound, Conflict),
            role=Role.SUBMITTER,
        ),
        Endpoint(
            "PATCH",
            _JOB,
            path_parameters(_JOB),
            (mode,),
            command=commands.cancel,
            response=operations.Empty,
            status=202,
            errors=(NotFound, Conflict),
            role=Role.SUBMITTER,
        ),
        Endpoint(
            "PUT",
            f"{_JOB}/resource-requirements",
            path_parameters(_JOB),
            command=commands.require_resources,
            body=dict[str, VertexRequirements],
            response=operations.Empty,
            errors=(NotFound, Conflict),
            needs_body=True,
            role=Role.SUBMITTER,
        ),
        *(
            Endpoint(
                "POST",
                _JOB + path,
                path_parameters(_JOB),
                command=command,
                body=body,
                response=trigger,
                status=202,
                errors=(NotFound,),
                role=Role.SUBMITTER,
            )
            for path, command, body in (
                ("/stop", commands.stop, operations.StopBody),
                ("/savepoints", commands.savepoint, operations.SavepointBody),
                ("/checkpoints", commands.checkpoint, operations.CheckpointBody),
            )
        ),
    ]


class ProgramCommands(Protocol):
    """What a server does with uploaded programs: a `Programs`. Arguments as of `Commands`."""

    def upload(self, _parameters: Parameters, file: UploadedFile, _key: str | None, /) -> Answer:
        """Stores a program."""
        ...

    def programs(self, _parameters: Parameters, _body: object, _key: str | None, /) -> Answer:
        """Lists the programs."""
        ...

    def delete(self, parameters: Parameters, _body: object, _key: str | None, /) -> Answer:
        """Deletes a program."""
        ...

    def plan(self, parameters: Parameters, body: PlanBody | None, _key: str | None, /) -> Answer:
        """Returns the plan of a program's job."""
        ...

    def run(self, parameters: Parameters, body: RunBody, key: str | None, /) -> Answer:
        """Submits a program's job."""
        ...


_PROGRAM = "/jars/{jarid}"


def program_commands(commands: ProgramCommands) -> list[Endpoint]:
    """Returns Flink's endpoints of uploaded programs. Whoever may submit a job may have its code run here."""
    return [
        Endpoint("GET", "/jars", command=commands.programs, response=ProgramFiles),
        Endpoint(
            "POST",
            "/jars/upload",
            command=commands.upload,
            takes_file=True,
            response=UploadResult,
            errors=(Conflict,),
            role=Role.SUBMITTER,
        ),
        Endpoint(
            "DELETE",
            _PROGRAM,
            path_parameters(_PROGRAM),
            command=commands.delete,
            response=operations.Empty,
            errors=(NotFound,),
            role=Role.SUBMITTER,
        ),
        *(
            Endpoint(
                method,
                f"{_PROGRAM}/plan",
                path_parameters(_PROGRAM),
                PLAN_QUERY,
                command=commands.plan,
                body=PlanBody if method == "POST" else None,
                response=JobPlan,
                errors=(NotFound,),
                role=Role.SUBMITTER,
            )
            for method in ("GET", "POST")
        ),
        Endpoint(
            "POST",
            f"{_PROGRAM}/run",
            path_parameters(_PROGRAM),
            RUN_QUERY,
            command=commands.run,
            body=RunBody,
            response=RunResult,
            errors=(NotFound, Conflict),
            role=Role.SUBMITTER,
        ),
    ]


def own_commands(commands: Commands) -> list[Endpoint]:
    """Returns tailrace's own endpoints that write."""
    return [
        Endpoint(
            "POST",
            "/submissions",
            command=commands.submit,
            body=operations.SubmissionBody,
            response=operations.Submission,
            status=201,
            errors=(Conflict,),
            needs_body=True,
            role=Role.SUBMITTER,
        ),
        Endpoint(
            "POST",
            f"{_JOB}/rescale",
            path_parameters(_JOB),
            command=commands.rescale,
            body=operations.RescaleBody,
            response=operations.Empty,
            errors=(NotFound, Conflict),
            needs_body=True,
            role=Role.SUBMITTER,
        ),
        *operator_commands(commands),
    ]
