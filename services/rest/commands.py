"""The table of endpoints that write: Flink's, and tailrace's own below /api/v1."""

from __future__ import annotations

from typing import Protocol

from .endpoint import Answer, Endpoint, Parameter, Parameters
from .errors import Conflict, NotFound
from .flink import operations
from .flink.applications import job_parameters
from .flink.endpoints import path_parameters
from .principal import Role


class Commands(Protocol):
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

    def shut_down(self, _parameters: Parameters, _body: object, key: str | None, /) -> Answer:
        """Ends the cluster."""
        ...

    def submit(self, _parameters: Parameters, body: operations.SubmissionBody, key: str | None, /) -> Answer:
        """Submits a program."""
        ...


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
        )
    ]
