"""Writes by REST: a request is a record on the submissions topic, and its outcome is read from the log.

The address of a request's client is derived from its id or Idempotency-Key. So every server finds the request in the
log, whichever sent it, and the same request twice is one.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...infra.closing import Closeable
from ...schemas import client as answers
from ...schemas import dispatcher as dispatcher_events
from ...schemas import job_master
from ...schemas.event import Record
from ...schemas.states import JOB_ENDS
from ...schemas.types import EntryPoint, JobGraph, JobStatus, ParallelismBounds, RestOrigin
from ..blobs.errors import BlobError
from ..client.client import Client, describe_program, new_job_id
from ..client.subscription import JobRejectedError
from ..configuration import Configuration
from ..configuration.options.tenants import TENANT
from ..core.role import CLIENT, address
from ..dispatcher.state import Job
from ..dispatcher.submission_validation import savepoint_directory
from ..history import cluster_view
from ..history.cluster_view import JobView
from ..log import LogUnavailable
from .endpoint import Answer, Parameters
from .errors import BadRequest, Conflict, Forbidden, NotFound, Unavailable
from .flink import ids, operations
from .flink.jobs import VertexRequirements
from .flink.lookup import dispatcher, find_graph, find_job, find_vertex
from .live_replica import LiveReplica
from .moment import Moment
from .principal import current_principal

_OUTCOME_TIMEOUT_S = 10.0
_KAFKA_TIMEOUT_S = 10.0
_TRIGGER_ID = re.compile(r"[0-9a-f]{32}")
_RETRY = {"Retry-After": "5"}


class Requests(Closeable):
    """Sends requests to the cluster; thread-safe. All methods raise Unavailable if Kafka or the leader do not answer.

    The commands have the arguments of an endpoint: the parameters, the body, and the Idempotency-Key or None.
    """

    def __init__(self, configuration: Configuration, replica: LiveReplica, server: str = "") -> None:
        """`server`: the address of the REST server, for the log."""
        self._server = server
        self._configuration = configuration
        self._replica = replica
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._in_flight: set[str] = set()

    def cancel(self, parameters: Parameters, _body: object, key: str | None) -> Answer:
        """PATCH /jobs/:jobid: cancels the job; it is answered when the JobMaster has the command"""
        mode = parameters.get("mode")
        if mode is not None and mode is not operations.TerminationMode.CANCEL:
            raise BadRequest("The mode stop is not supported any more: use /jobs/:jobid/stop.")
        with self._replica.read() as moment:
            _, view = _find_controlled_job(moment, parameters)
            offset = moment.offset
        if view.status is JobStatus.CANCELED:
            return Answer(operations.Empty(), 202, offset)
        if view.status in JOB_ENDS:
            raise Conflict(
                "Job cancellation failed because the job has already reached another terminal state "
                f"({view.status.value})."
            )
        if view.status is JobStatus.CANCELLING:
            return Answer(operations.Empty(), 202, offset)
        requester = _requester(f"cancel/{view.job_id}/{key}" if key else None)

        def find_outcome(record: Record, is_ignored: bool) -> str | None:
            match record.body:
                case answers.CancelJobRejected(job_id=view.job_id, reason=reason):
                    return reason if record.header.recipient == requester else None
                case job_master.CancelJob(job_id=view.job_id):
                    return None if is_ignored else ""
                case answers.JobStatusChanged(job_id=view.job_id, status=status) if status in JOB_ENDS:
                    return "" if status is JobStatus.CANCELED else f"the job is {status.value}"
                case _:
                    return None

        reason, offset = self.send(requester, lambda client: client.cancel(view.job_id), find_outcome)
        if reason:
            raise Conflict(f"Job cancellation failed: {reason}.")
        return Answer(operations.Empty(), 202, offset)

    def stop(self, parameters: Parameters, body: operations.StopBody, key: str | None) -> Answer:
        """POST /jobs/:jobid/stop: takes a savepoint, and ends the job with it"""
        directory = body.target_directory
        return self._trigger(
            parameters,
            body.trigger_id,
            key,
            lambda client, job_id, trigger_id: client.stop_with_savepoint(
                job_id, directory, drain=body.drain, trigger_id=trigger_id
            ),
        )

    def savepoint(self, parameters: Parameters, body: operations.SavepointBody, key: str | None) -> Answer:
        """POST /jobs/:jobid/savepoints: takes a savepoint; `cancel-job` ends the job with it"""
        directory = body.target_directory
        return self._trigger(
            parameters,
            body.trigger_id,
            key,
            lambda client, job_id, trigger_id: (
                client.stop_with_savepoint(job_id, directory, trigger_id=trigger_id)
                if body.cancel_job
                else client.trigger_savepoint(job_id, directory, trigger_id=trigger_id)
            ),
        )

    def checkpoint(self, parameters: Parameters, body: operations.CheckpointBody, key: str | None) -> Answer:
        """POST /jobs/:jobid/checkpoints: takes a checkpoint now"""
        return self._trigger(
            parameters, body.trigger_id, key, lambda client, job_id, _: client.trigger_checkpoint(job_id)
        )

    def require_resources(
        self, parameters: Parameters, body: Mapping[str, VertexRequirements], key: str | None
    ) -> Answer:
        """PUT /jobs/:jobid/resource-requirements: changes the parallelism of vertices while the job runs; it is
        answered when the JobMaster has accepted it"""
        with self._replica.read() as moment:
            _, view = find_job(moment, parameters)
            known = {
                name: vertex.vertex_id
                for vertex in find_graph(moment, view).vertices
                for name in (vertex.vertex_id, ids.to_vertex_id(vertex.vertex_id))
            }
        unknown = sorted(set(body) - set(known))
        if unknown:
            raise BadRequest(f"Job {parameters['jobid']} has no vertex {unknown[0][:80]}.")
        bounds = {
            known[name]: ParallelismBounds(
                lower_bound=each.parallelism.lower_bound, upper_bound=each.parallelism.upper_bound
            )
            for name, each in body.items()
        }
        return self._rescale(parameters, None, bounds, "", key)

    def rescale(self, parameters: Parameters, body: operations.RescaleBody, key: str | None) -> Answer:
        """POST /jobs/:jobid/rescale: changes the parallelism while the job runs; it is answered when the JobMaster has
        accepted it"""
        bounds = {
            name: ParallelismBounds(lower_bound=lower, upper_bound=upper)
            for name, (lower, upper) in body.bounds.items()
        }
        return self._rescale(parameters, body.parallelism, bounds, body.reason, key)

    def _rescale(
        self,
        parameters: Parameters,
        parallelism: int | None,
        bounds: Mapping[str, ParallelismBounds],
        reason: str,
        key: str | None,
    ) -> Answer:
        with self._replica.read() as moment:
            _, view = _find_controlled_job(moment, parameters)
        requester = _requester(f"rescale/{view.job_id}/{key}" if key else None)
        request: int | None = None

        def find_outcome(record: Record, is_ignored: bool) -> str | None:
            nonlocal request
            match record.body:
                case job_master.RescaleJob(requester=asker) if asker == requester and not is_ignored:
                    request = record.offset
                case answers.RescaleFailed(reason=why) if record.header.recipient == requester:
                    return why
                case job_master.RescaleStarted() | answers.JobRescaled() if (
                    request is not None and record.header.cause == request
                ):
                    return ""
                case _:
                    pass
            return None

        refused, offset = self.send(
            requester,
            lambda client: client.rescale(view.job_id, parallelism, bounds, reason=reason),
            find_outcome,
        )
        if refused:
            raise Conflict(f"The job is not rescaled: {refused}")
        return Answer(operations.Empty(), 200, offset)

    def dispose(self, _parameters: Parameters, body: operations.DisposalBody, key: str | None) -> Answer:
        """POST /savepoint-disposal: deletes a savepoint; a submitter of a tenant deletes those of its jobs"""
        current_principal().check_disposal()
        trigger_id = secrets.token_hex(16) if key is None else digest_of_key(f"savepoint-disposal/{key}")
        answer, requester = operations.TriggerResponse(trigger_id), operations.requester_of(trigger_id)
        with self._replica.read() as moment:
            is_answered = moment.fold.snapshot_requests.get_disposal(requester) is not None
            if is_answered or operations.is_disposal_pending(dispatcher(moment), requester):
                return Answer(answer, 200, moment.offset)

        def find_outcome(record: Record, is_ignored: bool) -> str | None:
            is_admitted = isinstance(record.body, dispatcher_events.DisposeSavepoint) and not is_ignored
            return "" if is_admitted and record.header.sender == requester else None

        # The answer names the directory as a URI.
        path = savepoint_directory(body.savepoint_path) or body.savepoint_path
        _, offset = self.send(requester, lambda client: client.dispose_savepoint(path), find_outcome)
        return Answer(answer, 200, offset)

    def shut_down(self, _parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """DELETE /cluster: ends the cluster as `tailrace cluster stop` does: jobs are cancelled, all processes end"""
        requester = _requester(None)

        def find_outcome(record: Record, _is_ignored: bool) -> str | None:
            is_admitted = isinstance(record.body, dispatcher_events.ShutDownCluster)
            return "" if is_admitted and record.header.sender == requester else None

        _, offset = self.send(
            requester, lambda client: client.shut_down("asked for by REST: DELETE /cluster"), find_outcome
        )
        return Answer(operations.Empty(), 200, offset)

    def submit(self, _parameters: Parameters, body: operations.SubmissionBody, key: str | None) -> Answer:
        """POST /submissions: submits a program by the name of its function; it is answered when the job is accepted"""
        entry_point = EntryPoint(
            target=body.target, arguments=tuple(body.arguments), configuration=dict(body.configuration)
        )
        job_id = self.new_job_id(describe_program(entry_point))
        if key is not None:
            job_id = f"{job_id[:-32]}{digest_of_key(key)}"
        offset = self.submit_job(
            entry_point,
            job_id,
            parallelism=body.parallelism,
            savepoint_path=body.savepoint_path,
            allow_non_restored_state=body.allow_non_restored_state,
        )
        return Answer(operations.Submission(job_id, ids.to_job_id(job_id)), 201, offset)

    def new_job_id(self, name: str) -> str:
        """Returns a unique job id of the principal's tenant."""
        return new_job_id(name, current_principal().grant.tenant or self._configuration.get(TENANT))

    def submit_job(
        self,
        what: JobGraph | EntryPoint,
        job_id: str,
        *,
        blob: Path | None = None,
        parallelism: int | None = None,
        savepoint_path: str | None = None,
        allow_non_restored_state: bool = False,
    ) -> int:
        """Submits a job, unless the cluster has it, and returns an offset of the log at which it is accepted. `blob`: a
        file that the job ships as a blob. Raises BadRequest, Conflict if the job is rejected.

        The answers go to an address that follows from the job's id, so who knows the id finds them.
        """
        requester = operations.requester_of(ids.to_job_id(job_id))

        def find_outcome(record: Record, is_ignored: bool) -> str | None:
            match record.body:
                case answers.JobAccepted(job_id=accepted) if accepted == job_id and not is_ignored:
                    return ""
                case answers.JobRejected(job_id=rejected, reason=reason) if rejected == job_id:
                    return reason
                case _:
                    return None

        def send(client: Client) -> None:
            if blob is not None:
                client.upload_file(blob, job_id)
            client.submit(
                what,
                parallelism,
                job_id,
                savepoint_path=savepoint_path,
                allow_non_restored_state=allow_non_restored_state,
            )

        if self._has_job(job_id):
            return self._replica.offset
        try:
            reason, offset = self.send(requester, send, find_outcome)
        except JobRejectedError as error:
            raise BadRequest(str(error)) from None
        except BlobError as error:
            raise Unavailable(f"The files of the job can't be uploaded: {error}", _RETRY) from None
        except Unavailable:
            if not self._has_job(job_id):
                raise
            return self._replica.offset
        if reason and not self._has_job(job_id):
            raise Conflict(f"The job was rejected: {reason}")
        return offset

    def find_controlled_job_id(self, parameters: Parameters) -> str:
        """Returns the id of the job of `jobid`. Raises NotFound, and Forbidden if it is not the principal's."""
        with self._replica.read() as moment:
            return _find_controlled_job(moment, parameters)[1].job_id

    def find_subtasks_of(self, job_id: str, vertex_id: str) -> tuple[str, int]:
        """Returns the id of a vertex of a job and its parallelism. Raises NotFound."""
        with self._replica.read() as moment:
            _, view = find_job(moment, {"jobid": job_id})
            found = find_vertex(find_graph(moment, view), {"vertexid": vertex_id})
            return found.vertex_id, found.parallelism

    def close(self) -> None:
        """Closes the connections."""
        with self._lock:
            if self._client is not None:
                self._client.close()

    def _trigger(
        self,
        parameters: Parameters,
        trigger_id: str | None,
        key: str | None,
        send: Callable[[Client, str, str], None],
    ) -> Answer:
        if trigger_id is not None and _TRIGGER_ID.fullmatch(trigger_id) is None:
            raise BadRequest("triggerId has 32 hexadecimal digits.")
        with self._replica.read() as moment:
            _, view = _find_controlled_job(moment, parameters)
            if trigger_id is None:
                trigger_id = secrets.token_hex(16) if key is None else _digest(f"{view.job_id}/{key}")
            requester = operations.requester_of(trigger_id)
            is_known = operations.find_snapshot_request(moment, requester) is not None
            offset = moment.offset
        answer = operations.TriggerResponse(trigger_id)
        if is_known:
            return Answer(answer, 202, offset)
        if view.status in JOB_ENDS:
            raise NotFound(
                f"Job {ids.to_job_id(view.job_id)} is {view.status.value}, and does not run any more"
            )

        def find_outcome(record: Record, is_ignored: bool) -> str | None:
            match record.body:
                case job_master.TriggerCheckpoint(requester=asker) if asker == requester and not is_ignored:
                    return ""
                case answers.CheckpointFailed(reason=reason) if record.header.recipient == requester:
                    return reason
                case _:
                    return None

        name = trigger_id
        _, offset = self.send(requester, lambda client: send(client, view.job_id, name), find_outcome)
        return Answer(answer, 202, offset)

    def send(
        self,
        requester: str,
        send: Callable[[Client], None],
        find_outcome: Callable[[Record, bool], str | None],
    ) -> tuple[str, int]:
        """Sends the request of the principal, unless it is in flight already, and returns its outcome with its offset.
        Raises Forbidden if the cluster does not have the principal's tenant."""
        principal = current_principal()
        tenant = principal.grant.tenant
        if tenant:
            self._check_tenant(tenant)
        origin = RestOrigin(principal=principal.name, server=self._server)

        def send_once() -> None:
            with self._lock:
                if requester in self._in_flight:
                    return
                self._in_flight.add(requester)
                if self._client is None:
                    self._client = Client(self._configuration, name="rest", timeout_s=_KAFKA_TIMEOUT_S)
                client = self._client.with_address(requester, tenant, origin)
            send(client)

        try:
            found: tuple[Any, int] | None = self._replica.request(send_once, find_outcome, _OUTCOME_TIMEOUT_S)
        except LogUnavailable as error:
            raise Unavailable(str(error), _RETRY) from None
        finally:
            with self._lock:
                self._in_flight.discard(requester)
        if found is None:
            raise Unavailable(
                f"The request was written, but no leader answered within {_OUTCOME_TIMEOUT_S:g} s: the next leader "
                "will process it. Send it again with the same Idempotency-Key.",
                _RETRY,
            )
        return found

    def _check_tenant(self, tenant: str) -> None:
        with self._replica.read() as moment:
            if tenant not in dispatcher(moment).options.tenants:
                raise Forbidden(f"The cluster has no tenant {tenant} (dispatcher.tenants).")

    def _has_job(self, job_id: str) -> bool:
        with self._replica.read() as moment:
            return job_id in cluster_view.statuses(moment.fold.replica)


def _find_controlled_job(moment: Moment, parameters: Parameters) -> tuple[Job, JobView]:
    """Returns the job of `jobid`. Raises Forbidden if it is not the principal's to control."""
    job, view = find_job(moment, parameters)
    current_principal().check_job(view.job_id, job.tenant)
    return job, view


def digest_of_key(key: str) -> str:
    """Returns the digits of the job that is submitted with an Idempotency-Key: a key of another tenant is another
    key."""
    tenant = current_principal().grant.tenant
    return _digest(f"{tenant}/{key}" if tenant else key)


def _requester(key: str | None) -> str:
    return address(CLIENT, f"rest-{secrets.token_hex(16) if key is None else _digest(key)}")


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
