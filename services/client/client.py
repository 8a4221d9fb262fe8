"""Sends requests to a cluster. A request is one Avro event in `<c>.submissions`; a client in any language does the
same.

A request that was produced is durable: if no jobmanager runs, the next one admits it.
"""

from __future__ import annotations

import re
import secrets
import time
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from ...schemas import dispatcher
from ...schemas.body import Body
from ...schemas.event import Event
from ...schemas.types import EntryPoint, Header, JobGraph
from ..configuration import Configuration
from ..core.role import CLIENT, DISPATCHER, address
from ..log import Codec, LogUnavailable
from ..log.clients import producer_configuration
from ..log.factory import open_event_log, schema_registry_client
from ..log.topics import LARGEST_SUBMISSION, submissions_topic
from ..snapshots.store import SnapshotStore
from .blob_upload import upload
from .log_subscription import ClusterSubscription, JobRejectedError

_NO_ID = re.compile(r"[^a-z0-9]+")
_MAX_NAME_LENGTH = 24


class Client:
    """One client, under an address of its own. To hear the answers, open a `conversation` before asking.

    All methods raise LogUnavailable where Kafka does not answer within `timeout` seconds.
    """

    def __init__(
        self, configuration: Configuration, *, name: str = "tailrace", timeout: float = 30.0
    ) -> None:
        self._topic = submissions_topic(configuration.cluster_id)
        self._servers = configuration.bootstrap_servers
        self._timeout = timeout
        self._codec = Codec(self._topic, schema_registry_client(configuration))
        self._log = open_event_log(configuration, timeout=timeout)
        self._producer = Producer(
            producer_configuration(self._servers, delivery_timeout_ms=int(timeout * 1000))
        )
        self.configuration = configuration
        self.address = address(CLIENT, f"{name}-{secrets.token_hex(4)}")
        """The sender of its requests and the recipient of their answers."""

    def submit(
        self,
        what: JobGraph | EntryPoint,
        parallelism: int | None = None,
        job_id: str | None = None,
        *,
        savepoint_path: str | None = None,
        allow_non_restored_state: bool = False,
    ) -> str:
        """Asks for a job to be run; returns its id. `parallelism` is the default of an entry point's program.

        `savepoint_path`: URI or absolute path of the savepoint or checkpoint that it begins with. What is large of the
        job is put on the cluster's BlobServer first.

        Raises JobRejectedError for one that is too large to be submitted.
        """
        if job_id is None:
            job_id = new_job_id(what.name if isinstance(what, JobGraph) else describe_program(what))
        # What can't be a blob goes on travelling along, as it does from clients that know nothing of blobs.
        what, left = upload(what, job_id, self.configuration, self._log)
        graph, entry_point = (what, None) if isinstance(what, JobGraph) else (None, what)
        body = dispatcher.SubmitJob(
            job_id=job_id,
            job_graph=graph,
            entry_point=entry_point,
            parallelism=parallelism,
            savepoint_path=savepoint_path,
            allow_non_restored_state=allow_non_restored_state,
        )
        size = self._request(body)
        if size > LARGEST_SUBMISSION:
            shipped = sum(len(each.content) for each in what.python_files)
            no_blobs = "" if left is None else f" (nothing of it could be made a blob: {left})"
            raise JobRejectedError(
                job_id,
                f"it has {size:,} bytes, {shipped:,} of them in files that it ships, but at most "
                f"{LARGEST_SUBMISSION:,} can be submitted{no_blobs}: let its functions load what they need, or install "
                "it where the cluster runs",
            )
        return job_id

    def cancel(self, job_id: str, *, keep_checkpoints: bool = False) -> None:
        """Asks for a job to be cancelled; complete checkpoints stay if its retention or `keep_checkpoints` says so."""
        self._request(dispatcher.CancelJob(job_id=job_id, keep_checkpoints=keep_checkpoints))

    def trigger_checkpoint(self, job_id: str) -> None:
        """Asks for a checkpoint of a job now; `checkpoints.Request` hears what comes of it."""
        self._request(dispatcher.TriggerCheckpoint(job_id=job_id))

    def trigger_savepoint(self, job_id: str, directory: str | None = None) -> None:
        """Asks for a savepoint of a job, in a directory of its own below `directory` or the configured one.

        Directories are URIs or absolute paths, as the jobmanager and the TaskExecutors see them.
        """
        self._request(dispatcher.TriggerSavepoint(job_id=job_id, directory=directory))

    def stop_with_savepoint(self, job_id: str, directory: str | None = None, *, drain: bool = False) -> None:
        """As `trigger_savepoint`, and the job ends with it; `drain`: after all windows and timers have fired."""
        self._request(dispatcher.StopWithSavepoint(job_id=job_id, directory=directory, drain=drain))

    def dispose_savepoint(self, path: str) -> None:
        """Asks for a savepoint to be deleted, by the URI or absolute path of its directory."""
        self._request(dispatcher.DisposeSavepoint(path=path))

    def raise_feature_level(self, level: int) -> None:
        """Asks for the rules of a feature level (services/core/feature_level.py), as soon as the masters know them."""
        self._request(dispatcher.RaiseFeatureLevel(level=level))

    def shut_down(self, reason: str, *, suspend: bool = False) -> None:
        """Asks for the cluster to end: jobs are cancelled, TaskExecutors and jobmanager leave.

        With `suspend` jobs are suspended instead, and go on when the cluster is started again.
        """
        self._request(dispatcher.ShutDownCluster(reason=reason, suspend=suspend))

    def subscribe(self) -> ClusterSubscription:
        """What the log will say to this client, from its present end on."""
        return ClusterSubscription(
            self._log, self.address, SnapshotStore.from_configuration(self.configuration)
        )

    def close(self) -> None:
        """Gives connections back."""
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _request(self, body: Body) -> int:
        """Its size in bytes; what is larger than a submission may be is not sent."""
        header = Header(
            event_id=secrets.token_hex(16),
            time=time.time_ns() // 1000,
            sender=self.address,
            sender_epoch=0,
            recipient=DISPATCHER,
        )
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        value = self._codec.encode(Event(header, body))
        if len(value) > LARGEST_SUBMISSION:
            return len(value)
        self._producer.produce(self._topic, value, key=self.address, on_delivery=delivered)
        left = self._producer.flush(self._timeout)
        if failures or left:
            why = failures[0].str() if failures else f"no answer within {self._timeout:g} s"
            raise LogUnavailable(
                f"{self._topic} takes no requests: {why}; is Kafka at {self._servers} up, and was the cluster "
                "ever started?"
            )
        return len(value)


def new_job_id(name: str) -> str:
    """An id that no job has, beginning with the job's name so that people recognise it."""
    readable = _NO_ID.sub("-", name.lower()).strip("-")[:_MAX_NAME_LENGTH].strip("-")
    return f"{readable or 'job'}-{secrets.token_hex(8)}"


def describe_program(entry_point: EntryPoint | None) -> str:
    """The last part of the module that an entry point names."""
    return entry_point.target.partition(":")[0].rpartition(".")[2] if entry_point else ""
