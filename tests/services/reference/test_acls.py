"""The ACLs keep the roles of a cluster apart, and the clusters of one Kafka, and cover the names in the code."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.pipelines.graph.physical_plan import (
    changelog_topic,
    channel_topic,
    consumer_group,
    output_topic,
    transactional_id,
)
from tailrace.services.client.client import new_job_id
from tailrace.services.configuration.options.kinds import TOPIC_PREFIX
from tailrace.services.log import topics
from tailrace.services.log.topics import (
    answers_topic,
    dead_letters_topic,
    heartbeats_topic,
    log_topic,
    submissions_topic,
)
from tailrace.services.reference import acls_page
from tailrace.services.reference.acls import (
    Acl,
    AclScope,
    Operation,
    PrincipalRole,
    ResourceType,
    acls_of,
    allows,
)

CLUSTER_TOPICS = (log_topic, submissions_topic, answers_topic, heartbeats_topic, dead_letters_topic)


def is_cluster_id(text: str) -> bool:
    try:
        return TOPIC_PREFIX.read(text) == text
    except ValueError:
        return False


ids = st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True)
cluster_ids = (
    st.lists(st.sampled_from(("a", "b", "job", "log")) | ids, min_size=1, max_size=3)
    .map(".".join)
    .filter(is_cluster_id)
)
roles = st.sampled_from(PrincipalRole)
tenants = st.just("") | st.from_regex(r"[a-z0-9][a-z0-9-]{0,23}", fullmatch=True)
WRITERS = {
    log_topic: {PrincipalRole.JOBMANAGER, PrincipalRole.TASKMANAGER},
    submissions_topic: {PrincipalRole.JOBMANAGER, PrincipalRole.SUBMITTER},
    answers_topic: {PrincipalRole.JOBMANAGER},
    heartbeats_topic: {PrincipalRole.JOBMANAGER, PrincipalRole.TASKMANAGER},
    dead_letters_topic: {PrincipalRole.JOBMANAGER},
}
"""Topic of the cluster -> the roles that write it."""


def names_of(cluster: str, job: str, part: str) -> list[tuple[ResourceType, str]]:
    """Returns names of all kinds that a cluster uses."""
    names = [topic(cluster) for topic in CLUSTER_TOPICS]
    names += [of(cluster, job, part) for of in (channel_topic, changelog_topic)]
    return [
        *((ResourceType.TOPIC, name) for name in (*names, output_topic(cluster, job))),
        (ResourceType.GROUP, consumer_group(cluster, job, part, 3)),
        (ResourceType.TRANSACTIONAL_ID, transactional_id(cluster, job, part, 3)),
    ]


def test_page_is_up_to_date() -> None:
    assert acls_page.PATH.read_text("utf-8") == acls_page.text()


@given(role=roles, cluster=cluster_ids, other=cluster_ids, job=ids, part=ids)
@example(role=PrincipalRole.AUDITOR, cluster="a", other="a.b", job="j", part="p")
@example(role=PrincipalRole.TASKS, cluster="a", other="a.b", job="j", part="p")
def test_acl_of_one_cluster_covers_no_name_of_another(
    role: PrincipalRole, cluster: str, other: str, job: str, part: str
) -> None:
    assume(cluster != other)
    needed = acls_of(role, AclScope(cluster))
    for kind, name in names_of(other, job, part):
        assert not any(acl.covers(kind, name) for acl in needed), name


@given(cluster=cluster_ids, job=ids, part=ids)
def test_auditor_reads_every_topic_of_cluster_but_requests_and_copied_answers(
    cluster: str, job: str, part: str
) -> None:
    needed = acls_of(PrincipalRole.AUDITOR, AclScope(cluster))
    for kind, name in names_of(cluster, job, part):
        is_read = kind is ResourceType.TOPIC and name not in (
            submissions_topic(cluster),
            answers_topic(cluster),
        )
        assert allows(needed, Operation.READ, kind, name) == is_read


@given(cluster=cluster_ids, part=ids, name=st.text(max_size=40), tenant=tenants, other=tenants)
@example(cluster="c", part="p", name="roll", tenant="pay", other="pay-roll")
@example(cluster="c", part="p", name="pay_x", tenant="pay", other="")
def test_tenant_reads_topics_of_its_own_jobs_only(
    cluster: str, part: str, name: str, tenant: str, other: str
) -> None:
    needed = acls_of(PrincipalRole.SUBMITTER, AclScope(cluster, tenant=tenant))
    for owner in (tenant, other):
        job = new_job_id(name, owner)
        for topic in (output_topic(cluster, job), channel_topic(cluster, job, part)):
            is_read = bool(tenant) and owner == tenant
            assert allows(needed, Operation.READ, ResourceType.TOPIC, topic) == is_read


@pytest.mark.parametrize("topic", CLUSTER_TOPICS, ids=lambda topic: topic.__name__)
def test_topic_of_cluster_is_written_by_its_writers_only(topic: object) -> None:
    name = topic("c")  # type: ignore[operator]
    writers = {
        role
        for role in PrincipalRole
        if allows(acls_of(role, AclScope("c")), Operation.WRITE, ResourceType.TOPIC, name)
    }
    assert writers == WRITERS[topic]  # type: ignore[index]


@pytest.mark.parametrize("name", [name for name in vars(topics) if name.endswith("_topic")])
def test_every_topic_of_cluster_has_rules(name: str) -> None:
    topic = getattr(topics, name)("c")
    assert any(
        acl.name == topic and acl.covers(ResourceType.TOPIC, topic)
        for role in (PrincipalRole.JOBMANAGER, PrincipalRole.TASKMANAGER)
        for acl in acls_of(role, AclScope("c"))
    )


@given(cluster=ids, job=ids, part=ids)
def test_task_may_use_names_of_job_and_nothing_of_cluster(cluster: str, job: str, part: str) -> None:
    needed = acls_of(PrincipalRole.TASKS, AclScope(cluster))
    own = {topic(cluster) for topic in CLUSTER_TOPICS}
    for kind, name in names_of(cluster, job, part):
        operation = Operation.READ if kind is ResourceType.GROUP else Operation.WRITE
        assert allows(needed, operation, kind, name) == (name not in own)
        assert allows(needed, Operation.DESCRIBE, kind, name) == (name not in own)


@pytest.mark.parametrize("role", PrincipalRole)
def test_rights_to_create_and_delete_topics_of_cluster_are_given_where_asked(role: PrincipalRole) -> None:
    def creators(scope: AclScope) -> set[tuple[str, Operation]]:
        wanted = (Operation.CREATE, Operation.DELETE)
        found = acls_of(role, scope)
        return {
            (topic("c"), operation)
            for topic in CLUSTER_TOPICS
            for operation in wanted
            if allows(found, operation, ResourceType.TOPIC, topic("c"))
        }

    assert not creators(AclScope("c", creates_topics=False))
    is_master = role is PrincipalRole.JOBMANAGER
    made = {(topic("c"), Operation.CREATE) for topic in CLUSTER_TOPICS}
    assert creators(AclScope("c")) == (made if is_master else set())
    kept_by_kafka = (answers_topic, heartbeats_topic)
    deleted = {(topic("c"), Operation.DELETE) for topic in CLUSTER_TOPICS if topic not in kept_by_kafka}
    assert creators(AclScope("c", deletes_events=True)) == (made | deleted if is_master else set())


def test_submitter_reads_answers_and_no_other_topic() -> None:
    needed = acls_of(PrincipalRole.SUBMITTER, AclScope("c"))
    read = [
        topic for topic in CLUSTER_TOPICS if allows(needed, Operation.READ, ResourceType.TOPIC, topic("c"))
    ]
    assert read == [answers_topic]


def test_topics_of_user_are_named_or_prefixes() -> None:
    scope = AclScope("c", reads=("orders",), writes=("totals.*",), groups=("shop",))
    needed = acls_of(PrincipalRole.TASKS, scope)
    topic = ResourceType.TOPIC
    assert allows(needed, Operation.READ, topic, "orders")
    assert not allows(needed, Operation.READ, topic, "orders.eu")
    assert not allows(needed, Operation.WRITE, topic, "orders")
    assert allows(needed, Operation.WRITE, topic, "totals.eu")
    assert not allows(needed, Operation.WRITE, topic, "totals")
    assert allows(needed, Operation.READ, ResourceType.GROUP, "shop")


def test_topic_of_tenant_is_written_by_its_submitters_and_for_its_rest_principals_by_masters() -> None:
    scope = AclScope("c", tenants=("pay", "search"))
    masters = {"pay", "search"}
    for role in PrincipalRole:
        for tenant in ("", "pay", "search"):
            found = acls_of(role, replace(scope, tenant=tenant))
            written = {
                of
                for of in ("pay", "search")
                if allows(found, Operation.WRITE, ResourceType.TOPIC, submissions_topic("c", of))
            }
            submitters = {tenant} - {""}
            expected = {PrincipalRole.SUBMITTER: submitters, PrincipalRole.JOBMANAGER: masters}
            assert written == expected.get(role, set())


def test_answers_to_tenant_are_read_by_its_submitters_and_written_by_masters_only() -> None:
    scope = AclScope("c", tenants=("pay", "search"))
    for role in PrincipalRole:
        for tenant in ("", "pay", "search"):
            found = acls_of(role, replace(scope, tenant=tenant))
            read, written = (
                {
                    of
                    for of in ("", "pay", "search")
                    if allows(found, operation, ResourceType.TOPIC, answers_topic("c", of))
                }
                for operation in (Operation.READ, Operation.WRITE)
            )
            of_masters = {"", "pay", "search"} if role is PrincipalRole.JOBMANAGER else set()
            assert written == of_masters
            assert read == ({tenant} if role is PrincipalRole.SUBMITTER else of_masters)


@pytest.mark.parametrize("role", PrincipalRole)
def test_acls_of_role_are_distinct_and_say_why(role: PrincipalRole) -> None:
    needed: list[Acl] = acls_of(role, AclScope("c", ("a", "b*"), ("d",), ("g",), tenants=("t", "u")))
    assert len({(acl.resource_type, acl.name, acl.pattern_type) for acl in needed}) == len(needed)
    assert all(acl.reason and acl.operations for acl in needed)
