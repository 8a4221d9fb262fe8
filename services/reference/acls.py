"""The Kafka ACLs of each kind of principal: all that its processes use, and nothing more.

The rules are data: a kind of resource, its name, the operations, the reason. `tailrace cluster acls` prints them for
the principals of a cluster, `tailrace cluster doctor` compares them with what the broker allows, docs/acls.md is
generated from them, and tests/integration/test_acls.py runs a cluster with exactly these.

A StreamTask runs the code of users with the identity of its process. So the role `tasks` has no right to the topics by
which the services communicate. Read, Write, Delete and Alter contain Describe (KIP-11), so the rules do not repeat it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

import msgspec

from ...infra.kafka_connection import READER_GROUP
from ...pipelines.graph.physical_plan import (
    WARM_UP_TOPIC,
    jobs_prefix,
)
from ..configuration.options.tenants import job_id_prefix
from ..log.topics import (
    answers_topic,
    answers_topics,
    dead_letters_topic,
    heartbeats_topic,
    log_topic,
    submissions_topic,
    submissions_topics,
)


class PrincipalRole(StrEnum):
    """What a principal is used for; the first three as in `kafka.<role>.<property>`."""

    JOBMANAGER = "jobmanager"
    TASKMANAGER = "taskmanager"
    TASKS = "tasks"
    SUBMITTER = "submitter"
    AUDITOR = "auditor"


class ResourceType(StrEnum):
    """A kind of resource, as kafka-acls names it."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


class PatternType(StrEnum):
    """Whether an ACL is for one name, or for all names with a prefix (KIP-290)."""

    LITERAL = "literal"
    PREFIXED = "prefixed"


class Operation(StrEnum):
    """An operation, as kafka-acls names it."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"


IMPLIED: Final = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
}
"""An operation -> the operations that contain it."""


class Acl(msgspec.Struct, frozen=True):
    """The operations that a principal needs on a resource, and why."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    operations: tuple[Operation, ...]
    reason: str

    def covers(self, resource_type: ResourceType, name: str) -> bool:
        """Whether this is an ACL of the resource."""
        if resource_type is not self.resource_type:
            return False
        is_prefix = self.pattern_type is PatternType.PREFIXED
        return name.startswith(self.name) if is_prefix else name == self.name


class AclScope(msgspec.Struct, frozen=True):
    """What the ACLs depend on besides the role."""

    cluster: str
    reads: tuple[str, ...] = ()
    """The topics of Kafka sources; a name that ends with `*` is a prefix."""
    writes: tuple[str, ...] = ()
    """The topics of Kafka sinks, likewise."""
    groups: tuple[str, ...] = ()
    """The `group_id`s of Kafka sources, likewise."""
    creates_topics: bool = True
    """Whether the processes create the cluster's own topics. Otherwise somebody creates them before the first start."""
    tenants: tuple[str, ...] = ()
    """The tenants with topics of their own for submissions."""
    tenant: str = ""
    """The tenant that a submitter belongs to; empty: none."""
    deletes_events: bool = False
    """Whether the leader deletes old records (`log.retention.time`, `log.retention.bytes`)."""


def acls_of(role: PrincipalRole, scope: AclScope) -> list[Acl]:
    """Returns the ACLs of a principal of this role."""
    return list(_RULES[role](scope))


def allows(acls: Iterable[Acl], operation: Operation, resource_type: ResourceType, name: str) -> bool:
    """Whether these ACLs allow the operation, as Kafka's StandardAuthorizer decides."""
    sufficient = {operation, *IMPLIED.get(operation, ())}
    return any(acl.covers(resource_type, name) and sufficient.intersection(acl.operations) for acl in acls)


def _topic(name: str, reason: str, *operations: Operation) -> Acl:
    return Acl(ResourceType.TOPIC, name, PatternType.LITERAL, operations, reason)


def _prefixed(resource_type: ResourceType, prefix: str, reason: str, *operations: Operation) -> Acl:
    return Acl(resource_type, prefix, PatternType.PREFIXED, operations, reason)


def _named(resource_type: ResourceType, name: str, reason: str, *operations: Operation) -> Acl:
    """Returns the ACL of a name that may end with `*`."""
    is_prefix = name.endswith("*")
    pattern = PatternType.PREFIXED if is_prefix else PatternType.LITERAL
    return Acl(resource_type, name.removesuffix("*"), pattern, operations, reason)


_READER: Final = Acl(
    ResourceType.GROUP,
    READER_GROUP,
    PatternType.LITERAL,
    (Operation.DESCRIBE,),
    "readers of topics name this group; nothing is committed to it",
)


def _jobmanager(scope: AclScope) -> Iterator[Acl]:
    cluster = scope.cluster
    create = (Operation.CREATE,) if scope.creates_topics else ()
    delete = (Operation.DELETE,) if scope.deletes_events else ()
    configs = Operation.DESCRIBE_CONFIGS
    yield _topic(
        log_topic(cluster),
        "reads all events, appends decisions, checks the settings",
        *(Operation.READ, Operation.WRITE, configs, *create, *delete),
    )
    yield _topic(
        submissions_topic(cluster),
        "admits requests, checks the settings; `cluster stop` writes a request",
        *(Operation.READ, Operation.WRITE, configs, *create, *delete),
    )
    for tenant in scope.tenants:
        yield _topic(
            submissions_topic(cluster, tenant),
            "admits requests of the tenant, writes those of its principals at the REST server, checks the settings",
            *(Operation.READ, Operation.WRITE, configs, *create, *delete),
        )
    for tenant, topic in answers_topics(cluster, scope.tenants).items():
        of_whom = " of the tenant" if tenant else ""
        yield _topic(
            topic,
            f"writes what the log says to clients{of_whom}, reads how far it is, checks the settings",
            *(Operation.READ, Operation.WRITE, configs, *create),
        )
    yield _topic(
        heartbeats_topic(cluster),
        "exchanges heartbeats with TaskExecutors",
        *(Operation.READ, Operation.WRITE, configs, *create),
    )
    yield _topic(
        dead_letters_topic(cluster),
        "writes rejected records, and reads the last ones",
        *(Operation.READ, Operation.WRITE, *create, *delete),
    )
    yield _prefixed(
        ResourceType.TOPIC,
        jobs_prefix(cluster),
        "creates, extends and deletes the topics of jobs",
        *(Operation.CREATE, Operation.ALTER, Operation.DELETE),
    )
    yield _READER


def _taskmanager(scope: AclScope) -> Iterator[Acl]:
    cluster = scope.cluster
    yield _topic(log_topic(cluster), "reads its events, appends its answers", Operation.READ, Operation.WRITE)
    yield _topic(
        heartbeats_topic(cluster), "exchanges heartbeats with masters", Operation.READ, Operation.WRITE
    )
    submissions = submissions_topics(cluster, scope.tenants).values()
    answers = answers_topics(cluster, scope.tenants).values()
    for name in (*submissions, *answers, dead_letters_topic(cluster)):
        yield _topic(name, "notices that the topic was deleted", Operation.DESCRIBE)
    yield _READER


def _tasks(scope: AclScope) -> Iterator[Acl]:
    cluster = scope.cluster
    yield _prefixed(
        ResourceType.TOPIC,
        jobs_prefix(cluster),
        "reads and writes channels, changelogs and output; deletes what is committed",
        *(Operation.READ, Operation.WRITE, Operation.DELETE),
    )
    yield _prefixed(
        ResourceType.TRANSACTIONAL_ID,
        jobs_prefix(cluster),
        "output, state and progress in one transaction",
        Operation.WRITE,
    )
    yield _prefixed(
        ResourceType.GROUP, jobs_prefix(cluster), "copies of a subtask's positions", Operation.READ
    )
    yield _topic(
        WARM_UP_TOPIC, "warms Spark with queries of an empty topic", Operation.CREATE, Operation.READ
    )
    for name in scope.reads:
        yield _named(ResourceType.TOPIC, name, "a Kafka source", Operation.READ)
    for name in scope.groups:
        yield _named(ResourceType.GROUP, name, "the `group_id` of a Kafka source", Operation.READ)
    for name in scope.writes:
        yield _named(ResourceType.TOPIC, name, "a Kafka sink", Operation.WRITE)


def _submitter(scope: AclScope) -> Iterator[Acl]:
    cluster, tenant = scope.cluster, scope.tenant
    of_whom = " of the tenant" if tenant else ""
    yield _topic(
        submissions_topic(cluster, tenant), f"writes requests{of_whom}, from any language", Operation.WRITE
    )
    whose = "requests of the tenant" if tenant else "its requests"
    yield _topic(answers_topic(cluster, tenant), f"reads the answers to {whose}", Operation.READ)
    if tenant:
        jobs = f"{jobs_prefix(cluster)}{job_id_prefix(tenant)}"
        yield _prefixed(ResourceType.TOPIC, jobs, "reads what jobs of the tenant print", Operation.READ)
    yield _READER


def _auditor(scope: AclScope) -> Iterator[Acl]:
    cluster = scope.cluster
    configs = Operation.DESCRIBE_CONFIGS
    yield _topic(log_topic(cluster), "reads all events, checks the settings", Operation.READ, configs)
    submissions = submissions_topics(cluster, scope.tenants).values()
    for name in (*submissions, *answers_topics(cluster, scope.tenants).values()):
        yield _topic(name, "checks the settings", Operation.DESCRIBE, configs)
    yield _topic(
        heartbeats_topic(cluster),
        "reads the accumulators of running jobs, checks the settings",
        Operation.READ,
        configs,
    )
    yield _topic(dead_letters_topic(cluster), "reads dead letters", Operation.READ)
    yield _prefixed(ResourceType.TOPIC, jobs_prefix(cluster), "reads the output of jobs", Operation.READ)
    yield _READER


_RULES: Final = {
    PrincipalRole.JOBMANAGER: _jobmanager,
    PrincipalRole.TASKMANAGER: _taskmanager,
    PrincipalRole.TASKS: _tasks,
    PrincipalRole.SUBMITTER: _submitter,
    PrincipalRole.AUDITOR: _auditor,
}

PURPOSES: Final = {
    PrincipalRole.JOBMANAGER: "the jobmanagers, `cluster start` and `cluster stop`",
    PrincipalRole.TASKMANAGER: "the TaskExecutors",
    PrincipalRole.TASKS: "the tasks: Spark and the StreamTasks, which run the code of users",
    PrincipalRole.SUBMITTER: "programs that submit, cancel or stop jobs",
    PrincipalRole.AUDITOR: "who reads: `list`, `log`, `story`, `output`, `cluster status`, `cluster verify`",
}
"""Role -> who has it."""
