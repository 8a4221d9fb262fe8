"""Checks of Kafka: whether it answers to the credentials, and the topics of the cluster."""

from __future__ import annotations

from typing import Final

from ....infra.kafka_check import check_connection
from ...log.factory import create_admin_client
from ...log.kafka_release import REMEDY, find_faulty_brokers
from ..readers.kafka_check import silent_addresses
from ..verification.log_checks import MISSING, check_cluster_topics
from ..verification.report import Findings
from .report import Report, Subject

_TIMEOUT_S: Final = 10.0


def check_kafka(subject: Subject, report: Report) -> None:
    """Checks that a broker answers to the credentials, and that all brokers are reachable under their names.

    Raises KafkaRefusal, KafkaUnreachable.
    """
    kafka = subject.configuration.kafka
    check_connection(kafka, _TIMEOUT_S)
    found = create_admin_client(subject.configuration).list_topics(timeout=_TIMEOUT_S).brokers.values()
    brokers = ",".join(f"{broker.host}:{broker.port}" for broker in found)
    for problem in silent_addresses(brokers):
        report.warn(f"a broker of {kafka} is out of reach: {problem}")
    report.ok(f"Kafka at {kafka} answers; its brokers are {brokers}")
    for _, fault in find_faulty_brokers(kafka):
        if fault is not None:
            report.warn(fault, REMEDY)


def check_topics(subject: Subject, report: Report) -> None:
    """Checks that the topics of the cluster exist and keep their records, as `cluster verify` does."""
    cluster, found = subject.configuration.cluster_id, Findings()
    check_cluster_topics(subject.configuration, found)
    missing = [fault for fault in found.faults if fault.problem == MISSING]
    if len(missing) == found.total and subject.scope.creates_topics:
        report.skip(f"no topic of cluster {cluster} exists yet: `tailrace cluster start` creates them")
        return
    for fault in found.faults:
        report.fail(f"{fault.name}: {fault.problem}; lost: {fault.lost}")
    if not found.faults:
        report.ok(f"the {found.total} topics of cluster {cluster} keep their records")
