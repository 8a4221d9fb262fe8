"""A client of a cluster that sends its requests by REST, and reads their outcome from the log, by REST too."""

from __future__ import annotations

import secrets

from ...infra.closing import Closeable
from ..configuration import Configuration
from ..configuration.options.rest import REST_URL
from ..core.role import CLIENT, address
from ..log.rest_log import RestConnection, RestEventLog
from .client import Client
from .log_subscription import ClusterSubscription


class RestClient(Closeable):
    """The requests of a Client that are about one job. All methods raise RequestRefused, LogUnavailable."""

    def __init__(self, configuration: Configuration) -> None:
        self._connection = RestConnection(configuration)
        self._trigger_id = secrets.token_hex(16)
        self.address = address(CLIENT, f"rest-{self._trigger_id}")
        """The address to which the outcome of a checkpoint or savepoint is sent."""

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

    def subscribe(self) -> ClusterSubscription:
        """Subscribes to the log's events for this client, from its current end on."""
        return ClusterSubscription(RestEventLog(self._connection), self.address)

    def close(self) -> None:
        """Has no effect: each request has its own connection."""

    def _trigger(self, job_id: str, what: str, body: dict[str, object]) -> None:
        given = {key: value for key, value in body.items() if value is not None}
        self._connection.send("POST", f"/v1/jobs/{job_id}/{what}", {**given, "triggerId": self._trigger_id})


JobClient = Client | RestClient
"""What a command that is about one job sends its requests with."""


def open_job_client(configuration: Configuration, name: str, timeout_s: float) -> JobClient:
    """Returns a client of Kafka, or of the REST server that the configuration names. Raises LogUnavailable."""
    if configuration.get(REST_URL):
        return RestClient(configuration)
    return Client(configuration, name=name, timeout_s=timeout_s)
