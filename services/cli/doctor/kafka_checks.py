"""Checks of Kafka: its addresses, the credentials, the topics of the cluster."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaException

from ....infra.kafka_check import KafkaRefusal, KafkaUnreachable, check_connection
from ...configuration.options.cluster import BOOTSTRAP_SERVERS
from ...log.factory import create_admin_client
from ...log.kafka_release import REMEDY, find_faulty_brokers
from ..readers.kafka_check import silent_addresses
from ..verification.log_checks import MISSING, check_cluster_topics
from ..verification.report import Findings
from .report import Report, Subject

_TIMEOUT_S: Final = 10.0


def check_reachability(subject: Subject, report: Report) -> None:
    """Checks that an address accepts connections."""
    servers = subject.configuration.bootstrap_servers
    silent = silent_addresses(servers)
    for problem in silent:
        report.warn(problem)
    if len(silent) == len(servers.split(",")):
        report.fail(f"there is no Kafka at {servers}", f"start it, or correct {BOOTSTRAP_SERVERS.key}")
    else:
        report.ok(f"{servers} accepts connections")


def check_authentication(subject: Subject, report: Report) -> None:
    """Checks that a broker answers to the credentials."""
    try:
        check_connection(subject.configuration.kafka, _TIMEOUT_S)
        found = create_admin_client(subject.configuration).list_topics(timeout=_TIMEOUT_S)
    except (KafkaRefusal, KafkaUnreachable) as error:
        report.fail(str(error))
        return
    except KafkaException as error:
        report.fail(f"Kafka at {subject.configuration.kafka} does not answer: {error.args[0].str()}")
        return
    brokers = ", ".join(f"{broker.host}:{broker.port}" for broker in found.brokers.values())
    report.ok(f"Kafka answers; its brokers are {brokers}")
    for _, fault in find_faulty_brokers(subject.configuration.kafka):
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
