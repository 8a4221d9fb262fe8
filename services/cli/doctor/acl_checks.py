"""Compares the rights that a broker reports for the asking principal with the ACLs of its role.

Kafka reports the authorised operations of an existing topic or group (KIP-430). For a topic that does not exist it says
only whether it may be described, and a creation that is only validated says whether it may be created. For a
transactional id it says nothing: this check fences the id `<prefix>doctor`, which Kafka forgets after a week.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ...log.clients import client_configuration
from ...log.factory import create_admin_client
from ...reference.acls import Acl, Operation, PatternType, ResourceType, acls_of
from ..render.acls import grant_command
from .report import Report, Subject

_TIMEOUT_S: Final = 10.0
_PROBE: Final = "doctor"
"""The end of a name for which a prefix is tried."""
_SILENT: Final = logging.Logger("doctor", logging.CRITICAL + 1)
_NAMES: Final = {operation.upper(): operation for operation in Operation} | {
    "DESCRIBE_CONFIGS": Operation.DESCRIBE_CONFIGS
}
"""confluent_kafka's name of an operation -> the operation."""
_REFUSED: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)


class Rights(NamedTuple):
    """The operations that a principal may and may not perform on one resource; of others the broker says nothing."""

    allowed: frozenset[Operation]
    refused: frozenset[Operation]


def check_acls(subject: Subject, report: Report) -> None:
    """Checks all ACLs of the role."""
    admin = create_admin_client(subject.configuration)
    needed = acls_of(subject.role, subject.scope)
    principal = subject.configuration.kafka.principal
    missing_count = unknown_count = 0
    for acl, rights in zip(needed, read_rights(subject, admin, needed), strict=True):
        missing = [operation for operation in acl.operations if operation in rights.refused]
        unknown = [operation for operation in acl.operations if operation not in (*rights.allowed, *missing)]
        missing_count, unknown_count = missing_count + len(missing), unknown_count + len(unknown)
        star = "*" if acl.pattern_type is PatternType.PREFIXED else ""
        if missing:
            report.fail(
                f"{principal} lacks {', '.join(missing)} on {acl.resource_type} {acl.name}{star}, which "
                f"{subject.role} needs ({acl.reason})",
                grant_command(acl, principal, subject.tool, missing),
            )
        if unknown:
            report.skip(
                f"{', '.join(unknown)} on {acl.resource_type} {acl.name}{star} can't be checked: there is no such "
                "topic yet"
            )
    if not missing_count:
        rest = f", except {unknown_count} that can't be checked yet" if unknown_count else ""
        report.ok(f"{principal} has the rights of {subject.role} on {len(needed)} resources{rest}")


def read_rights(subject: Subject, admin: AdminClient, acls: Sequence[Acl]) -> list[Rights]:
    """Returns the rights on the resource of each ACL. Raises KafkaException if a broker does not answer."""
    topics = _read_topic_rights(admin, [acl for acl in acls if acl.resource_type is ResourceType.TOPIC])
    found = []
    for acl in acls:
        match acl.resource_type:
            case ResourceType.TOPIC:
                found.append(topics[acl])
            case ResourceType.GROUP:
                found.append(_read_group_rights(admin, acl))
            case ResourceType.TRANSACTIONAL_ID:
                found.append(_try_transaction(subject, acl))
    return found


def _read_topic_rights(admin: AdminClient, acls: Sequence[Acl]) -> Mapping[Acl, Rights]:
    if not acls:
        return {}
    existing = sorted(admin.list_topics(timeout=_TIMEOUT_S).topics)
    names = {acl: _example(acl, existing) for acl in acls}
    answers = admin.describe_topics(
        TopicCollection(sorted(set(names.values()))),
        include_authorized_operations=True,
        request_timeout=_TIMEOUT_S,
    )
    return {acl: _topic_rights(admin, acl, name, answers[name].result) for acl, name in names.items()}


def _topic_rights(admin: AdminClient, acl: Acl, name: str, answer: Callable[[float], Any]) -> Rights:
    try:
        return _of_authorized(acl, answer(_TIMEOUT_S).authorized_operations)
    except KafkaException as error:
        code = error.args[0].code()
        if code not in (*_REFUSED, KafkaError.UNKNOWN_TOPIC_OR_PART):
            raise
    wanted = frozenset(acl.operations)
    rest = wanted - {Operation.CREATE}
    # Each of these operations contains Describe, which was refused.
    rights = (
        Rights(frozenset(), rest)
        if code in _REFUSED
        else Rights(frozenset({Operation.DESCRIBE}), frozenset())
    )
    if Operation.CREATE not in wanted:
        return rights
    own = frozenset({Operation.CREATE})
    if _may_create(admin, name):
        return Rights(rights.allowed | own, rights.refused)
    return Rights(rights.allowed, rights.refused | own)


def _may_create(admin: AdminClient, topic: str) -> bool:
    (answer,) = admin.create_topics(
        [NewTopic(topic, 1)], validate_only=True, request_timeout=_TIMEOUT_S
    ).values()
    try:
        answer.result(_TIMEOUT_S)
    except KafkaException as error:
        return error.args[0].code() not in _REFUSED
    return True


def _read_group_rights(admin: AdminClient, acl: Acl) -> Rights:
    name = _example(acl, ())
    answer = admin.describe_consumer_groups(
        [name], include_authorized_operations=True, request_timeout=_TIMEOUT_S
    )[name]
    try:
        return _of_authorized(acl, answer.result(_TIMEOUT_S).authorized_operations)
    except KafkaException as error:
        if error.args[0].code() not in _REFUSED:
            raise
        return Rights(frozenset(), frozenset(acl.operations))


def _try_transaction(subject: Subject, acl: Acl) -> Rights:
    producer = Producer(
        {
            **client_configuration(subject.configuration.kafka),
            "transactional.id": _example(acl, ()),
            "logger": _SILENT,
        }
    )
    wanted = frozenset(acl.operations)
    try:
        producer.init_transactions(_TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() not in _REFUSED:
            raise
        return Rights(frozenset(), wanted)
    return Rights(wanted, frozenset())


def _of_authorized(acl: Acl, authorized: Sequence[Any] | None) -> Rights:
    """Returns the rights from a broker's answer; a broker before Kafka 2.3 reports none."""
    if authorized is None:
        return Rights(frozenset(), frozenset())
    allowed = frozenset(_NAMES[each.name] for each in authorized if each.name in _NAMES)
    return Rights(allowed, frozenset(acl.operations) - allowed)


def _example(acl: Acl, existing: Sequence[str]) -> str:
    """Returns a name that the ACL covers: an existing one, if there is one."""
    if acl.pattern_type is PatternType.LITERAL:
        return acl.name
    return next((name for name in existing if name.startswith(acl.name)), f"{acl.name}{_PROBE}")
