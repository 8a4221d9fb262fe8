"""A client of a cluster that sends its requests by REST, and reads their outcome from the log, by REST too."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ...infra.closing import Closeable
from ...pipelines.checkpoint.source_positions import SourcePosition
from ...schemas.types import EntryPoint, ParallelismBounds, QuarantineMode
from ..configuration import Configuration
from ..configuration.options.rest import REST_URL
from ..core.role import CLIENT, address
from ..log.rest_log import RequestRefused, RestConnection, RestEventLog
from .client import Client
from .log_subscription import ClusterSubscription
from .offset_reset import ResetPosition, ResetTarget, ToEarliest, ToLatest, ToOffsets, ToTime
from .source_offsets import SourceOffset

_BUILD_TIMEOUT_S: Final = 330.0
"""A server builds two programs at once, each for 60 s at most, and lets eight others wait."""
_LAG_S: Final = 10.0
_POLL_S: Final = 0.2


class RestClient(Closeable):
    """The requests of a Client that are about one job, and programs that are run elsewhere. All methods raise
    RequestRefused, LogUnavailable."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self._connection = RestConnection(configuration)
        self._trigger_id = secrets.token_hex(16)
        self.address = address(CLIENT, f"rest-{self._trigger_id}")
        """The address to which the outcome of a checkpoint or savepoint is sent."""

    def submit(
        self,
        entry_point: EntryPoint,
        parallelism: int | None,
        *,
        savepoint_path: str | None = None,
        allow_non_restored_state: bool = False,
    ) -> str:
        """Submits a program that the jobmanager's machine runs; returns the job's id."""
        body = {
            "target": entry_point.target,
            "arguments": list(entry_point.arguments),
            "configuration": dict(entry_point.configuration),
            "parallelism": parallelism,
            "savepoint_path": savepoint_path,
            "allow_non_restored_state": allow_non_restored_state,
        }
        answer, _ = self._connection.send("POST", "/api/v1/submissions", body)
        return str(answer["job_id"])

    def run_file(
        self,
        path: Path,
        arguments: Sequence[str],
        configuration: Mapping[str, str],
        parallelism: int | None,
        *,
        savepoint_path: str | None = None,
        allow_non_restored_state: bool = False,
    ) -> str:
        """Uploads a program, which the server runs up to its first `execute`; returns the job's id. Raises OSError."""
        uploaded = self._connection.upload("/v1/jars/upload", path.name, path.read_bytes())
        body = {
            "programArgsList": list(arguments),
            "flinkConfiguration": dict(configuration),
            "parallelism": parallelism,
            "savepointPath": savepoint_path,
            "allowNonRestoredState": allow_non_restored_state,
        }
        program = uploaded["filename"].rpartition("/")[2]
        answer, _ = self._connection.send("POST", f"/v1/jars/{program}/run", body, _BUILD_TIMEOUT_S)
        return self._find_job_id(answer["jobid"])

    def cancel(self, job_id: str, *, keep_checkpoints: bool = False) -> None:
        """Cancels a job. Returns when its JobMaster has the command."""
        if keep_checkpoints:
            raise NotImplementedError("no request cancels a job and keeps its checkpoints")
        self._connection.send("PATCH", f"/v1/jobs/{job_id}")

    def trigger_checkpoint(self, job_id: str) -> None:
        """Requests a checkpoint."""
        self._trigger(job_id, "checkpoints", {})

    def trigger_savepoint(self, job_id: str, directory: str | None = None) -> None:
        """Requests a savepoint. `directory`: its parent directory; None: that of the cluster."""
        self._trigger(job_id, "savepoints", {"target-directory": directory})

    def stop_with_savepoint(self, job_id: str, directory: str | None = None, *, drain: bool = False) -> None:
        """Requests a savepoint that ends the job."""
        self._trigger(job_id, "stop", {"targetDirectory": directory, "drain": drain})

    def rescale(
        self,
        job_id: str,
        parallelism: int | None = None,
        bounds: Mapping[str, ParallelismBounds] = {},
        *,
        reason: str = "",
    ) -> None:
        """Requests another parallelism of a running job, as `Client.rescale` does."""
        body = {
            "parallelism": parallelism,
            "bounds": {name: [each.lower_bound, each.upper_bound] for name, each in bounds.items()},
            "reason": reason,
        }
        self._connection.send("POST", f"/api/v1/jobs/{job_id}/rescale", body)

    def pause(self, job_id: str) -> None:
        """Pauses a job. Returns when its JobMaster has the command."""
        self._connection.send("POST", f"/api/v1/jobs/{job_id}/pause")

    def resume(self, job_id: str) -> None:
        """Resumes a paused job. Returns when its JobMaster has the command."""
        self._connection.send("POST", f"/api/v1/jobs/{job_id}/resume")

    def restart_tasks(
        self, job_id: str, vertex_id: str | None = None, subtask_index: int | None = None
    ) -> None:
        """Restarts tasks of a job. Returns when its JobMaster has the command."""
        body = {"vertex": vertex_id, "subtask": subtask_index}
        self._connection.send("POST", f"/api/v1/jobs/{job_id}/restart", body)

    def configure(self, job_id: str, configuration: Mapping[str, str], removed: Sequence[str] = ()) -> None:
        """Changes options of a job. Returns when its JobMaster has the command."""
        body = {**configuration, **dict.fromkeys(removed)}
        self._connection.send("PATCH", f"/api/v1/jobs/{job_id}/configuration", body)

    def reset_offsets(
        self, job_id: str, target: ResetTarget, topics: Sequence[str] = (), *, dry_run: bool = False
    ) -> list[ResetPosition]:
        """Resets the positions of a paused job's Kafka sources; returns those that change. `dry_run`: only that."""
        body = {**_fields_of(target), "topics": list(topics), "dryRun": dry_run}
        answer, _ = self._connection.send("PATCH", f"/api/v1/jobs/{job_id}/offsets", body)
        return [
            ResetPosition(
                SourcePosition("", each["source"], each["topic"], each["partition"], each["from"]), each["to"]
            )
            for each in answer["offsets"]
        ]

    def source_offsets(self, job_id: str) -> list[SourceOffset]:
        """Returns the positions of a job's Kafka sources."""
        answer: Any = self._connection.get(f"/api/v1/jobs/{job_id}/offsets")[0]
        return [
            SourceOffset("", **{key: value for key, value in each.items() if key != "lag"})
            for each in answer["offsets"]
        ]

    def set_quarantine(
        self, resource_id: str | None, host: str | None, mode: QuarantineMode, reason: str
    ) -> None:
        """Quarantines, drains or releases a TaskExecutor or a host."""
        body = {"taskExecutor": resource_id, "host": host, "mode": mode.value, "reason": reason}
        self._connection.send("POST", "/api/v1/quarantines", body)

    def subscribe(self) -> ClusterSubscription:
        """Subscribes to the log's events for this client, from its current end on."""
        return ClusterSubscription(RestEventLog(self._connection), self.address)

    def submitter_of(self, job_id: str) -> str:
        """Returns the address to which answers about a job that `submit` or `run_file` has submitted are sent."""
        return address(CLIENT, f"rest-{job_id[-32:]}")

    def close(self) -> None:
        """Has no effect: each request has its own connection."""

    def _find_job_id(self, flink_id: str) -> str:
        until = time.monotonic() + _LAG_S
        while True:
            try:
                answer: Any = self._connection.get(f"/api/v1/jobs/{flink_id}")[0]
                return str(answer["job"]["job_id"])
            except RequestRefused as error:
                # Another server behind the same address may not have read the job's acceptance yet.
                if error.status != 404 or time.monotonic() > until:
                    raise
                time.sleep(_POLL_S)

    def _trigger(self, job_id: str, what: str, body: dict[str, object]) -> None:
        given = {key: value for key, value in body.items() if value is not None}
        self._connection.send("POST", f"/v1/jobs/{job_id}/{what}", {**given, "triggerId": self._trigger_id})


def _fields_of(target: ResetTarget) -> dict[str, object]:
    match target:
        case ToEarliest():
            return {"to": "earliest"}
        case ToLatest():
            return {"to": "latest"}
        case ToTime(timestamp_ms):
            return {"timestamp": timestamp_ms}
        case ToOffsets(offsets):
            named = [
                {"topic": topic, "partition": partition, "offset": offset}
                for (topic, partition), offset in offsets.items()
            ]
            return {"offsets": named}


JobClient = Client | RestClient
"""What a command that is about one job sends its requests with."""


def open_job_client(
    configuration: Configuration, name: str, timeout_s: float, *, sends: bool = True
) -> JobClient:
    """Returns a client of Kafka, or of the REST server that the configuration names. `sends`: whether it sends
    requests. Raises LogUnavailable."""
    if configuration.get(REST_URL):
        return RestClient(configuration)
    return Client(configuration, name=name, timeout_s=timeout_s, sends=sends)
