"""The table of all options of a cluster (docs/configuration.md is generated from it).

Each module declares the options of one subject; this module combines them in the order of the page. Options of jobs are
declared in pipelines/graph/job_options.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ....infra.config.options import ConfigOption, OrderedOptions, index, unknown
from ....pipelines.graph import adaptive_scheduler_options, autoscaler_options, job_options
from . import (
    blob,
    cluster,
    debug,
    diagnostics,
    external_resources,
    heartbeat,
    high_availability,
    jobs,
    kafka,
    kerberos,
    kubernetes,
    kubernetes_election,
    metrics,
    quarantine,
    relay,
    resource_manager,
    rest,
    retention,
    simulation,
    slots,
    snapshots,
    spark,
    task_executor,
    tenants,
    topics,
    traces,
    yarn,
    zookeeper,
)
from .external_resources import EXTERNAL_RESOURCE_AMOUNT, EXTERNAL_RESOURCES, amount_of, resource_of
from .heartbeat import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT
from .tenants import TENANT_OPTIONS, find_tenant_option

GROUPS: Mapping[str, tuple[ConfigOption[Any], ...]] = {
    "Where the cluster is": cluster.OPTIONS,
    "Kafka": kafka.OPTIONS,
    "High availability": (*high_availability.OPTIONS, *zookeeper.OPTIONS, *kubernetes_election.OPTIONS),
    "Snapshots": snapshots.OPTIONS,
    "Topics": topics.OPTIONS,
    "Retention": retention.OPTIONS,
    "Blobs": blob.OPTIONS,
    "Relay of the log": relay.OPTIONS,
    "REST": rest.OPTIONS,
    "TaskExecutors": task_executor.OPTIONS,
    "Quarantine": quarantine.OPTIONS,
    "Spark": spark.OPTIONS,
    "What a TaskExecutor offers": (*task_executor.OFFERS, EXTERNAL_RESOURCES),
    "Slots": slots.OPTIONS,
    "ResourceManager": resource_manager.OPTIONS,
    "YARN": yarn.OPTIONS,
    "Kerberos": kerberos.OPTIONS,
    "Kubernetes": kubernetes.OPTIONS,
    "Dispatcher": jobs.OPTIONS,
    "Tenants": tenants.OPTIONS,
    "Heartbeats": heartbeat.OPTIONS,
    "Simulation": simulation.OPTIONS,
    "Metrics": metrics.OPTIONS,
    "Diagnostics": diagnostics.OPTIONS,
    "Traces": traces.OPTIONS,
    "Debugging": debug.OPTIONS,
    "Jobs": job_options.EXECUTION,
    "Checkpoints": job_options.CHECKPOINTING,
    "Restart strategies": job_options.RESTART,
    "Adaptive scheduler": adaptive_scheduler_options.OPTIONS,
    "Autoscaler": autoscaler_options.OPTIONS,
}
"""Title of a section -> its options."""
OPTIONS: tuple[ConfigOption[Any], ...] = tuple(
    option for group in GROUPS.values() for option in group if option not in kafka.OPTIONS
)
ORDERED = (OrderedOptions(HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, is_strict=True), *job_options.ORDERED)
BY_KEY: Mapping[str, ConfigOption[Any]] = index(OPTIONS)
KEYS = (
    *BY_KEY,
    EXTERNAL_RESOURCE_AMOUNT.key,
    *(option.key for option in (*TENANT_OPTIONS, *kafka.OPTIONS)),
)
"""In the order of the page."""

_PREFIX = "TAILRACE_"


def find_option(key: str) -> ConfigOption[Any] | None:
    """Returns the option of a key, or None."""
    if (name := resource_of(key)) is not None:
        return amount_of(name)
    if (option := find_tenant_option(key)) is not None:
        return option
    if kafka.is_property(key):
        return kafka.find_property(key)
    return BY_KEY.get(key)


def explain_unknown(key: str) -> str:
    """Returns one line about a key without an option."""
    return kafka.explain_property(key) if kafka.is_property(key) else unknown(key, KEYS)


def environment_variable(key: str) -> str:
    """Returns the environment variable of an option; it is unique."""
    return _PREFIX + key.upper().replace(".", "_").replace("-", "_")


def find_contradictions(configuration: Mapping[str, str]) -> Iterator[str]:
    """Yields one line for each contradiction between values that are valid alone."""
    for pair in ORDERED:
        if (fault := pair.find_error(configuration)) is not None:
            yield fault
    yield from zookeeper.find_contradictions(configuration)
    yield from external_resources.find_contradictions(configuration)
    yield from topics.find_contradictions(configuration)
    yield from tenants.find_contradictions(configuration)
    yield from kubernetes.find_contradictions(configuration)
