"""Checks of what a cluster uses besides Kafka: schema registry, storage, ZooKeeper, Kubernetes, BlobServer."""

from __future__ import annotations

import secrets
from typing import Final

from ....infra.storage.errors import CheckpointError
from ....infra.storage.storage import Storage
from ....pipelines.graph.job_options import CHECKPOINTS_DIRECTORY
from ...blobs.client import BlobClient
from ...blobs.errors import BlobError
from ...blobs.protocol import Timeouts
from ...blobs.shared_secret_auth import SharedSecret
from ...blobs.tls import client_tls
from ...client.blob_upload import find_server
from ...configuration.options.blob import BLOB_SECRET_FILE
from ...configuration.options.cluster import SCHEMA_REGISTRY_CREDENTIALS_FILE, SCHEMA_REGISTRY_URL
from ...configuration.options.high_availability import HA_STORAGE, HIGH_AVAILABILITY, HighAvailability
from ...configuration.options.kubernetes import CONFIG_FILE, NAMESPACE
from ...configuration.options.zookeeper import ZOOKEEPER_QUORUM
from ...election.candidates import ElectionUnreachable
from ...election.factory import open_candidates_reader
from ...election.settings import ZooKeeperSettings
from ...election.write_check import ZooKeeperUnusable, measure_clock
from ...log.factory import open_event_log, schema_registry_client
from ...snapshots.store import SnapshotStore
from .clock import report_clock
from .report import Report, Subject

_TIMEOUT_S: Final = 10.0
_CONNECT_S: Final = 3.0


def check_registry(subject: Subject, report: Report) -> None:
    """Checks that the schema registry answers to the credentials."""
    url = subject.configuration.schema_registry_url
    if not url:
        report.skip("there is no schema registry: events are written in single-object encoding")
        return
    client = schema_registry_client(subject.configuration)
    if client is None:
        return
    try:
        subjects = client.get_subjects()
    except Exception as error:  # any error of its HTTP client
        report.fail(
            f"the schema registry {url} does not answer: {error}",
            f"correct {SCHEMA_REGISTRY_URL.key}, or the user in {SCHEMA_REGISTRY_CREDENTIALS_FILE.key}",
        )
        return
    report.ok(f"the schema registry {url} answers; it has {len(subjects)} subjects")


def check_storage(subject: Subject, report: Report) -> None:
    """Checks that files can be written, read and deleted where the cluster stores them."""
    configuration = subject.configuration
    checkpoints = configuration.as_map().get(CHECKPOINTS_DIRECTORY.key)
    places = {HA_STORAGE.key: configuration.ha_storage, CHECKPOINTS_DIRECTORY.key: checkpoints}
    for key, uri in places.items():
        if uri:
            _check_place(key, uri, report)


def _check_place(key: str, uri: str, report: Report) -> None:
    storage = Storage.open(uri)
    name, content = f".doctor-{secrets.token_hex(8)}", secrets.token_bytes(16)
    try:
        existed = storage.exists("")
        storage.write_atomically(name, content)
        found = storage.read(name)
        storage.delete(name)
        if not existed:
            storage.delete_if_empty("")
    except CheckpointError as error:
        report.fail(
            f"{key} is not usable: {error}",
            f"let the user of this process write to {uri}, or set {key} to another place",
        )
        return
    if found == content:
        report.ok(f"{key}: {uri} can be written")
    else:
        report.fail(f"{key}: {uri} returns other content than was written", f"set {key} to another place")


def check_zookeeper(subject: Subject, report: Report) -> None:
    """Checks that ZooKeeper lets this process write, and compares the clocks."""
    if subject.configuration.get(HIGH_AVAILABILITY) is not HighAvailability.ZOOKEEPER:
        report.skip("high-availability.type is not zookeeper")
        return
    settings = ZooKeeperSettings.from_configuration(subject.configuration)
    try:
        ahead_s = measure_clock(settings, timeout_s=_TIMEOUT_S)
    except ZooKeeperUnusable as error:
        report.fail(str(error), f"start it, or correct {ZOOKEEPER_QUORUM.key} and its credentials")
        return
    report.ok(f"ZooKeeper at {settings.quorum} can be written below {settings.cluster_path}")
    report_clock(report, ahead_s, "ZooKeeper")


def check_leases(subject: Subject, report: Report) -> None:
    """Checks that the API server of Kubernetes lists the Leases by which it elects the leader."""
    try:
        if subject.configuration.get(HIGH_AVAILABILITY) is not HighAvailability.KUBERNETES:
            report.skip("high-availability.type is not kubernetes")
            return
        reader = open_candidates_reader(subject.configuration)
        count = 0 if reader is None else len(reader.candidates())
    except ElectionUnreachable as error:
        report.fail(str(error), f"correct {NAMESPACE.key} and {CONFIG_FILE.key}")
        return
    report.ok(f"the API server of Kubernetes lists {count} candidates for the lead")


def check_blob_server(subject: Subject, report: Report) -> None:
    """Checks that the BlobServer of the leading jobmanager answers, and knows the secret of the cluster."""
    configuration = subject.configuration
    log = open_event_log(configuration, timeout_s=_TIMEOUT_S)
    try:
        address = find_server(log, SnapshotStore.from_configuration(configuration))
    finally:
        log.close()
    if address is None:
        report.skip("no jobmanager has led the cluster yet, so there is no BlobServer")
        return
    secret, tls = SharedSecret.from_configuration(configuration), client_tls(configuration)
    try:
        with BlobClient(
            address,
            connect_timeout_s=_CONNECT_S,
            pace=Timeouts(answer=_TIMEOUT_S),
            secret=secret,
            tls=tls,
        ):
            report.ok(f"the BlobServer at {address} answers")
    except BlobError as error:
        report.fail(
            str(error), f"start a jobmanager (`tailrace cluster status`), or correct {BLOB_SECRET_FILE.key}"
        )
