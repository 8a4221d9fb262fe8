"""tailrace's own requests of operators by REST: to pause, resume, restart and configure jobs, and to quarantine
TaskExecutors."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Annotated, Protocol

import msgspec

from ...schemas import client as answers
from ...schemas import dispatcher as dispatcher_events
from ...schemas import job_master, resource_manager
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.types import QuarantineMode
from ..client.client import Client
from ..configuration.dynamic_options import find_change_error
from ..core.role import CLIENT, address
from .endpoint import Answer, Endpoint, Parameters
from .errors import BadRequest, Conflict, Forbidden, NotFound
from .flink import operations
from .flink.endpoints import path_parameters
from .principal import Role

_Text = Annotated[str, msgspec.Meta(max_length=1_000)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=300)]


class RestartBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /jobs/:jobid/restart. `vertex`: its id; null for all vertices. `subtask`: from 0; null for all subtasks."""

    vertex: _Name | None = None
    subtask: Annotated[int, msgspec.Meta(ge=0)] | None = None


class QuarantineBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """POST /quarantines: a TaskExecutor or a host, and whether it is QUARANTINED, DRAINING or RELEASED."""

    mode: QuarantineMode
    task_executor: _Name | None = None
    host: _Name | None = None
    reason: _Text = "asked for by REST"


class RequestSender(Protocol):
    """What sends a request and finds its outcome: a `Requests`."""

    def send(
        self,
        requester: str,
        send: Callable[[Client], None],
        find_outcome: Callable[[Record, bool], str | None],
    ) -> tuple[str, int]:
        """Sends a request of the principal, and returns its outcome with its offset."""
        ...

    def find_controlled_job_id(self, parameters: Parameters) -> str:
        """Returns the id of a job that is the principal's to control."""
        ...

    def find_subtasks_of(self, job_id: str, vertex_id: str) -> tuple[str, int]:
        """Returns the id of a vertex of a job and its parallelism. Raises NotFound."""
        ...


class OperatorRequests:
    """The commands. Arguments: parameters, body, Idempotency-Key or None."""

    def __init__(self, sender: RequestSender) -> None:
        self._sender = sender

    def pause(self, parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """POST /jobs/:jobid/pause: ends the tasks of a job, and keeps its state and positions"""
        return self._control(parameters, Client.pause, dispatcher_events.PauseJob, job_master.SuspendJob)

    def resume(self, parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """POST /jobs/:jobid/resume: resumes a paused job"""
        return self._control(parameters, Client.resume, dispatcher_events.ResumeJob, job_master.ResumeJob)

    def restart(self, parameters: Parameters, body: RestartBody, _key: str | None) -> Answer:
        """POST /jobs/:jobid/restart: restarts tasks of a job from their last commit"""
        if body.subtask is not None and body.vertex is None:
            raise BadRequest("A subtask needs its vertex.")
        vertex_id = None
        if body.vertex is not None:
            job_id = self._sender.find_controlled_job_id(parameters)
            vertex_id, parallelism = self._sender.find_subtasks_of(job_id, body.vertex)
            if body.subtask is not None and body.subtask >= parallelism:
                raise NotFound(f"JobVertex {body.vertex} has no subtask {body.subtask}")
        return self._control(
            parameters,
            lambda client, job_id: client.restart_tasks(job_id, vertex_id, body.subtask),
            dispatcher_events.RestartTasks,
            job_master.RestartTasks,
        )

    def configure(self, parameters: Parameters, body: Mapping[str, str | None], _key: str | None) -> Answer:
        """PATCH /jobs/:jobid/configuration: changes options of a job while it runs; null gives an option the value
        again that the job was started with"""
        changes = {key: text for key, text in body.items() if text is not None}
        removed = [key for key, text in body.items() if text is None]
        if (fault := find_change_error(changes, removed)) is not None:
            raise BadRequest(f"The options can't change so: {fault}.")
        return self._control(
            parameters,
            lambda client, job_id: client.configure(job_id, changes, removed),
            dispatcher_events.ConfigureJob,
            job_master.JobConfigurationChanged,
        )

    def set_quarantine(self, _parameters: Parameters, body: QuarantineBody, _key: str | None) -> Answer:
        """POST /quarantines: quarantines, drains or releases a TaskExecutor or a host"""
        if (body.task_executor is None) == (body.host is None):
            raise BadRequest("Name a taskExecutor or a host, one of both.")
        requester = _new_requester()
        _, offset = self._sender.send(
            requester,
            lambda client: client.set_quarantine(body.task_executor, body.host, body.mode, body.reason),
            _outcome_of(requester, dispatcher_events.SetQuarantine, resource_manager.QuarantineChanged),
        )
        return Answer(operations.Empty(), 200, offset)

    def _control(
        self,
        parameters: Parameters,
        send: Callable[[Client, str], None],
        request: type[Body],
        verdict: type[Body],
    ) -> Answer:
        return Answer(operations.Empty(), 202, control_job(self._sender, parameters, send, request, verdict))


def control_job(
    sender: RequestSender,
    parameters: Parameters,
    send: Callable[[Client, str], None],
    request: type[Body],
    verdict: type[Body],
) -> int:
    """Sends a request about a job; returns the offset of the verdict. Raises NotFound, Forbidden, Conflict."""
    job_id = sender.find_controlled_job_id(parameters)
    requester = _new_requester()
    reason, offset = sender.send(
        requester, lambda client: send(client, job_id), _outcome_of(requester, request, verdict)
    )
    if reason:
        raise Conflict(f"The request is rejected: {reason}.")
    return offset


def _new_requester() -> str:
    return address(CLIENT, f"rest-{secrets.token_hex(16)}")


def _outcome_of(
    requester: str, request: type[Body], verdict: type[Body]
) -> Callable[[Record, bool], str | None]:
    """Returns a function that finds the verdict on a request: the reason if it is rejected, else an empty text."""
    asked: set[int] = set()

    def find_outcome(record: Record, is_ignored: bool) -> str | None:
        body, header = record.body, record.header
        if isinstance(body, request) and header.sender == requester:
            asked.add(record.offset)
        elif isinstance(body, answers.JobRequestRejected) and header.recipient == requester:
            return body.reason
        elif isinstance(body, verdict) and header.cause in asked and not is_ignored:
            return ""
        return None

    return find_outcome


def operator_commands(sender: RequestSender) -> list[Endpoint]:
    """Returns the endpoints."""
    requests, job = OperatorRequests(sender), "/jobs/{jobid}"
    return [
        *(
            Endpoint(
                "POST",
                f"{job}/{name}",
                path_parameters(job),
                command=command,
                body=body,
                response=operations.Empty,
                status=202,
                errors=(NotFound, Conflict, Forbidden),
                role=Role.SUBMITTER,
            )
            for name, command, body in (
                ("pause", requests.pause, None),
                ("resume", requests.resume, None),
                ("restart", requests.restart, RestartBody),
            )
        ),
        Endpoint(
            "PATCH",
            f"{job}/configuration",
            path_parameters(job),
            command=requests.configure,
            body=dict[str, str | None],
            response=operations.Empty,
            status=202,
            errors=(NotFound, Conflict, Forbidden),
            needs_body=True,
            role=Role.SUBMITTER,
        ),
        Endpoint(
            "POST",
            "/quarantines",
            command=requests.set_quarantine,
            body=QuarantineBody,
            response=operations.Empty,
            needs_body=True,
        ),
    ]
