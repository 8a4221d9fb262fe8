"""Sends requests to a cluster. A request is one Avro event in `<c>.submissions`; clients in any language do the same.

A request is durable once it is produced: if no jobmanager runs, the next one admits it.
"""

from __future__ import annotations

import copy
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from ...infra.closing import Closeable
from ...infra.open_telemetry import current_traceparent
from ...schemas import dispatcher
from ...schemas.body import Body
from ...schemas.event import Event
from ...schemas.ids import MAX_ID_LENGTH
from ...schemas.types import (
    EntryPoint,
    Header,
    JobGraph,
    ParallelismBounds,
    PartitionOffset,
    QuarantineMode,
    RestOrigin,
)
from ..configuration import Configuration
from ..configuration.options.tenants import TENANT, job_id_prefix
from ..core.role import CLIENT, DISPATCHER, address
from ..log import Codec, LogUnavailable
from ..log.clients import poll_producer, producer_configuration
from ..log.factory import open_event_log, schema_registry_client
from ..log.lost_right import DENIED, RightWatch, check_write, is_denied
from ..log.topics import LARGEST_SUBMISSION, answers_topic, submissions_topic
from ..snapshots.store import SnapshotStore
from .answers_subscription import AnswersSubscription
from .blob_upload import copy_blobs, upload, upload_file
from .log_subscription import ClusterSubscription
from .subscription import JobRejectedError, Subscription

_NO_ID = re.compile(r"[^a-z0-9]+")
_MAX_NAME_LENGTH = 24
_POLL_S = 0.1


class Client(Closeable):
    """One client with its own address. To receive the answers, call `subscribe` before the request.

    All methods raise LogUnavailable if Kafka does not answer within `timeout_s` seconds.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        name: str = "tailrace",
        timeout_s: float = 30.0,
        sends: bool = True,
    ) -> None:
        """`sends`: the client will send requests, so it connects its producer now. A new idempotent producer waits half
        a second for its id, and needs the right to write."""
        self._topic = submissions_topic(configuration.cluster_id, configuration.get(TENANT))
        self._operator_topic = submissions_topic(configuration.cluster_id)
        """The topic of requests about the whole cluster, which no tenant may send."""
        self._kafka = configuration.kafka
        self._timeout = timeout_s
        self._codec = Codec(self._topic, schema_registry_client(configuration))
        self._log = open_event_log(configuration, timeout_s=timeout_s)
        self._writable: set[str] = set()
        """The topics that this client may write."""
        # With a login the right is checked first: without it librdkafka writes a message to stderr.
        self._producer = self._create_producer() if sends and not self._kafka.properties else None
        self._rest_origin: RestOrigin | None = None
        self.configuration = configuration
        self.address = address(CLIENT, f"{name}-{secrets.token_hex(4)}")
        """The sender of its requests and the recipient of their answers."""

    def with_address(
        self, client_address: str, tenant: str = "", rest_origin: RestOrigin | None = None
    ) -> Client:
        """Returns a client with another address and the same connections, which only this one closes. `tenant`: for
        whom it sends requests; empty: for the same as this one. `rest_origin`: who asked a REST server for them."""
        other = copy.copy(self)
        other.address = client_address
        other._rest_origin = rest_origin
        if tenant:
            other._topic = submissions_topic(self.configuration.cluster_id, tenant)
        return other

    def submit(
        self,
        what: JobGraph | EntryPoint,
        parallelism: int | None = None,
        job_id: str | None = None,
        *,
        savepoint_path: str | None = None,
        allow_non_restored_state: bool = False,
    ) -> str:
        """Requests a job; returns its id. `parallelism` is the default for the program of an entry point.

        `savepoint_path`: URI or absolute path of the savepoint or checkpoint to restore. Large parts of the job are
        uploaded to the cluster's BlobServer first.

        Raises JobRejectedError for a job that is too large.
        """
        if job_id is None:
            name = what.name if isinstance(what, JobGraph) else describe_program(what)
            job_id = new_job_id(name, self.configuration.get(TENANT))
        # Parts that could not be uploaded stay in the event, as with clients that do not use blobs.
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
            shipped = sum(len(file.content) for file in what.python_files)
            no_blobs = "" if left is None else f" (none of it could be uploaded as a blob: {left})"
            raise JobRejectedError(
                job_id,
                f"it has {size:,} bytes, {shipped:,} of them in files that it ships, but at most "
                f"{LARGEST_SUBMISSION:,} can be submitted{no_blobs}: let its functions load what they need, or install "
                "it where the cluster runs",
            )
        return job_id

    def upload_file(self, path: Path, job_id: str) -> None:
        """Uploads a file that a job will ship, as a blob of the job. Raises BlobError, OSError."""
        upload_file(path, job_id, self.configuration, self._log)

    def copy_blobs(self, keys: Sequence[str], job_id: str) -> None:
        """Stores blobs of one job as blobs of another, which need not exist yet. Raises BlobError."""
        copy_blobs(keys, job_id, self.configuration, self._log)

    def cancel(self, job_id: str, *, keep_checkpoints: bool = False) -> None:
        """Requests the cancellation of a job; its retention setting or `keep_checkpoints` retains completed
        checkpoints."""
        self._request(dispatcher.CancelJob(job_id=job_id, keep_checkpoints=keep_checkpoints))

    def trigger_checkpoint(self, job_id: str) -> None:
        """Requests a checkpoint now; `CheckpointRequest` receives the result."""
        self._request(dispatcher.TriggerCheckpoint(job_id=job_id))

    def trigger_savepoint(
        self, job_id: str, directory: str | None = None, *, trigger_id: str | None = None
    ) -> None:
        """Requests a savepoint of a job, in a new directory below `directory` or the configured one. `trigger_id`:
        requests with the same id are one.

        Directories are URIs or absolute paths that the jobmanager and the TaskExecutors can access.
        """
        self._request(dispatcher.TriggerSavepoint(job_id=job_id, directory=directory, trigger_id=trigger_id))

    def stop_with_savepoint(
        self,
        job_id: str,
        directory: str | None = None,
        *,
        drain: bool = False,
        trigger_id: str | None = None,
    ) -> None:
        """Requests a savepoint like `trigger_savepoint`, and stops the job; `drain`: after all windows and timers
        have fired."""
        self._request(
            dispatcher.StopWithSavepoint(
                job_id=job_id, directory=directory, drain=drain, trigger_id=trigger_id
            )
        )

    def rescale(
        self,
        job_id: str,
        parallelism: int | None = None,
        bounds: Mapping[str, ParallelismBounds] = {},
        *,
        reason: str = "",
    ) -> None:
        """Requests another parallelism of a running job: of the vertices at its default parallelism, and of single ones
        by their ids or names."""
        self._request(
            dispatcher.RescaleJob(job_id=job_id, parallelism=parallelism, bounds=dict(bounds), reason=reason)
        )

    def dispose_savepoint(self, path: str) -> None:
        """Requests the deletion of a savepoint, by the URI or absolute path of its directory."""
        self._request(dispatcher.DisposeSavepoint(path=path))

    def pause(self, job_id: str) -> None:
        """Requests that a job is paused: its tasks end and its slots are freed; its state and positions stay."""
        self._request(dispatcher.PauseJob(job_id=job_id))

    def resume(self, job_id: str) -> None:
        """Requests that a paused job continues."""
        self._request(dispatcher.ResumeJob(job_id=job_id))

    def restart_tasks(
        self, job_id: str, vertex_id: str | None = None, subtask_index: int | None = None
    ) -> None:
        """Requests a restart of tasks from their last commit: of a subtask (from 0), a vertex, or the whole job."""
        self._request(
            dispatcher.RestartTasks(job_id=job_id, vertex_id=vertex_id, subtask_index=subtask_index)
        )

    def configure(self, job_id: str, configuration: Mapping[str, str], removed: Sequence[str] = ()) -> None:
        """Requests other values of options of a job that has not ended; `removed`: those with which it was started."""
        self._request(
            dispatcher.ConfigureJob(job_id=job_id, configuration=dict(configuration), removed=tuple(removed))
        )

    def reset_offsets(self, job_id: str, offsets: Sequence[PartitionOffset]) -> None:
        """Requests that the Kafka sources of a paused job continue from these offsets when it is resumed."""
        self._request(dispatcher.ResetOffsets(job_id=job_id, offsets=tuple(offsets)))

    def set_quarantine(
        self, resource_id: str | None, host: str | None, mode: QuarantineMode, reason: str
    ) -> None:
        """Requests that a TaskExecutor or a host is quarantined, drained or released."""
        body = dispatcher.SetQuarantine(resource_id=resource_id, host=host, mode=mode, reason=reason)
        self._request(body, self._operator_topic)

    def raise_feature_level(self, level: int) -> None:
        """Requests a feature level (services/core/feature_level.py); the first leader that knows it raises it."""
        self._request(dispatcher.RaiseFeatureLevel(level=level), self._operator_topic)

    def shut_down(self, reason: str, *, suspend: bool = False) -> None:
        """Requests the shutdown of the cluster: jobs are cancelled, TaskExecutors and jobmanagers end.

        With `suspend` jobs are suspended instead, and resume when the cluster starts again.
        """
        self._request(dispatcher.ShutDownCluster(reason=reason, suspend=suspend), self._operator_topic)

    def subscribe(self) -> ClusterSubscription:
        """Subscribes to the log's events for this client, from its current end on."""
        return ClusterSubscription(
            self._log, self.address, SnapshotStore.from_configuration(self.configuration)
        )

    def subscribe_to_answers(self) -> Subscription:
        """Subscribes to the answers to this client: in the log, which says more about a job, if the principal may read
        it; otherwise in the topic of answers, or in that of its tenant."""
        if not is_denied(self._kafka, self._log.topic, AclOperation.READ, self._timeout):
            return self.subscribe()
        topic = answers_topic(self.configuration.cluster_id, self.configuration.get(TENANT))
        codec = Codec(topic, schema_registry_client(self.configuration))
        return AnswersSubscription(self._kafka, topic, codec, self.address, self._timeout)

    def close(self) -> None:
        """Closes the connections."""
        self._log.close()

    def _request(self, body: Body, topic: str | None = None) -> int:
        """Sends a request and returns its size in bytes; a request above the size limit is not sent. `topic`: None for
        that of the tenant, if there is one."""
        topic = topic or self._topic
        header = Header(
            event_id=secrets.token_hex(16),
            time=time.time_ns() // 1000,
            sender=self.address,
            sender_epoch=0,
            recipient=DISPATCHER,
            traceparent=current_traceparent(),
            rest_origin=self._rest_origin,
        )
        value = self._codec.encode(Event(header, body))
        if len(value) > LARGEST_SUBMISSION:
            return len(value)
        reports: list[KafkaError | None] = []

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            reports.append(error)

        producer = self._connect_producer(topic)
        try:
            producer.produce(topic, value, key=self.address, on_delivery=on_delivery)
        except KafkaException as error:
            reports.append(error.args[0])
        deadline = time.monotonic() + self._timeout
        while not reports and time.monotonic() < deadline:
            fatal = poll_producer(producer, _POLL_S)
            if fatal is not None:
                reports.append(fatal)
        # By identity: a comparison of a KafkaError with None leaves an exception set in confluent_kafka.
        if not reports or reports[0] is not None:
            cause = self._find_cause(producer, topic, reports[0] if reports else None)
            raise LogUnavailable(f"{topic} does not accept requests: {cause}")
        return len(value)

    def _connect_producer(self, topic: str) -> Producer:
        if topic not in self._writable:
            check_write(self._kafka, topic, self._timeout)
            self._writable.add(topic)
        if self._producer is None:
            self._producer = self._create_producer()
        return self._producer

    def _create_producer(self) -> Producer:
        return Producer(producer_configuration(self._kafka, delivery_timeout_ms=int(self._timeout * 1000)))

    def _find_cause(self, producer: Producer, topic: str, error: KafkaError | None) -> str:
        """Returns why a request was not taken: a producer waits for a missing topic as it waits for Kafka."""
        why = f"no answer within {self._timeout:g} s"
        if error is not None:
            why = RightWatch(self._kafka, topic, "Write").describe(error)
            if error.code() in DENIED:
                return why
        try:
            is_known = topic in producer.list_topics(timeout=self._timeout).topics
        except KafkaException:
            return f"{why}; is Kafka at {self._kafka} up?"
        if is_known:
            return why
        return "there is no such topic: was it deleted? `tailrace cluster start` creates it"


def new_job_id(name: str, tenant: str = "") -> str:
    """Returns a unique job id: the prefix of the tenant, the readable part of the job's name, and 128 random bits, as
    many as Flink's JobID has.

    Ids are never used twice in the life of a cluster, and nobody looks whether one is free.
    """
    prefix, random = job_id_prefix(tenant), secrets.token_hex(16)
    room = min(_MAX_NAME_LENGTH, MAX_ID_LENGTH - len(f"{prefix}-{random}"))
    readable = _NO_ID.sub("-", name.lower()).strip("-")[:room].strip("-")
    return f"{prefix}{readable or 'job'}-{random}"


def describe_program(entry_point: EntryPoint | None) -> str:
    """Returns the last part of the module name of an entry point."""
    return entry_point.target.partition(":")[0].rpartition(".")[2] if entry_point else ""
