"""A secured Kafka for tests: SASL_SSL, users of SCRAM, PLAIN and OAUTHBEARER, and nothing is allowed without an ACL."""

from __future__ import annotations

import re
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple

from certificates import CertificateAuthority
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from token_server import AUDIENCE, ISSUER, TokenServer

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.infra.kafka_security import ADMIN, BROKER, BrokerSecurity, Listener
from tailrace.services.reference import acls
from tailrace.services.reference.acls import AclScope, PatternType, PrincipalRole, acls_of

SCRAM: Final = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
PLAIN_USER: Final = "plain"
EXPIRED: Final = "EXPIRED"
"""The listener whose certificate has expired."""
SCRAM_ONLY: Final = "SCRAM_ONLY"
"""The listener without PLAIN."""
CERTIFICATES: Final = "CERTIFICATES"
"""The listener without SASL: a certificate says who a client is."""
TOKENS: Final = "TOKENS"
"""The listener with OAUTHBEARER."""
PLAINTEXT: Final = "OPEN"
"""The listener without TLS and login."""
_TIMEOUT_S: Final = 90.0
_LOG_DECISIONS: Final = "-Dorg.slf4j.simpleLogger.log.kafka.authorizer.logger=debug"
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
_ALLOWED_URLS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_DECISION: Final = re.compile(
    r"Principal = User:(\S+) is (Allowed|Denied) operation = (\w+) from .*? on resource = (\w+):LITERAL:(\S*) for "
)


class Decision(NamedTuple):
    """What the broker has decided about a request."""

    user: str
    is_allowed: bool
    operation: str
    """As Kafka names it, such as DESCRIBE_CONFIGS."""
    kind: str
    """The type of the resource, such as TransactionalId."""
    name: str


_KINDS: Final = {
    acls.ResourceType.TOPIC: ResourceType.TOPIC,
    acls.ResourceType.GROUP: ResourceType.GROUP,
    acls.ResourceType.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}
_PATTERNS: Final = {
    PatternType.LITERAL: ResourcePatternType.LITERAL,
    PatternType.PREFIXED: ResourcePatternType.PREFIXED,
}


class SecuredKafka:
    """A running secured broker, its certificate authority, and its users."""

    def __init__(
        self, kafka: EmbeddedKafka, authority: CertificateAuthority, directory: Path, tokens: TokenServer
    ) -> None:
        self.kafka = kafka
        self.authority = authority
        self.tokens = tokens
        self._directory = directory
        self.admin = AdminClient({**kafka.connection.to_librdkafka(), "log_level": 0})

    @property
    def bootstrap_servers(self) -> str:
        return self.kafka.bootstrap_servers

    def password_file(self, user: str) -> Path:
        """The file with a user's password."""
        return self._directory / f"{user}.password"

    def decisions(self) -> list[Decision]:
        """Returns what the broker has decided since its start, oldest first."""
        return [
            Decision(user, verdict == "Allowed", operation, kind, name)
            for user, verdict, operation, kind, name in _DECISION.findall(self.kafka.log_path.read_text())
        ]

    def add_user(self, user: str, mechanism: str = "SCRAM-SHA-512") -> KafkaConnection:
        """Creates a user of SCRAM, who is allowed nothing yet, with a new password; returns how it connects."""
        password = _new_password(self.password_file(user))
        credential = UserScramCredentialUpsertion(
            user, ScramCredentialInfo(SCRAM[mechanism], 4096), password.encode()
        )
        for future in self.admin.alter_user_scram_credentials([credential]).values():
            future.result(_TIMEOUT_S)
        return self.connection(user, mechanism)

    def add_oauth_client(self, name: str, lifetime_s: int = 3600) -> KafkaConnection:
        """Creates a client of the token server, who is allowed nothing yet; returns how it connects."""
        path = self.password_file(name)
        path.touch(mode=0o600)
        path.write_text(f"{self.tokens.add_client(name, lifetime_s)}\n")
        return KafkaConnection(
            self.kafka.address_of(TOKENS),
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": self.tokens.url,
                "sasl.oauthbearer.client.id": name,
                "sasl.oauthbearer.client.secret-file": str(path),
                "sasl.oauthbearer.scope": "kafka",
                "https.ca.location": str(self.authority.ca),
                "ssl.ca.location": str(self.authority.ca),
            },
        )

    def connection(
        self, user: str, mechanism: str = "SCRAM-SHA-512", address: str | None = None
    ) -> KafkaConnection:
        """Returns how a user connects, with the password of its file."""
        return KafkaConnection(
            address or self.bootstrap_servers,
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": mechanism,
                "sasl.username": user,
                "sasl.password-file": str(self.password_file(user)),
                "ssl.ca.location": str(self.authority.ca),
            },
        )

    def allow(
        self, user: str, operations: Iterable[AclOperation], kind: ResourceType, prefix: str = ""
    ) -> None:
        """Lets a user perform operations on resources whose names begin with a prefix; an empty one: on all."""
        self._change([_acl(user, operation, kind, prefix) for operation in operations])

    def allow_all(self, user: str) -> None:
        """Lets a user do everything."""
        kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID, ResourceType.BROKER)
        self._change([_acl(user, AclOperation.ALL, kind, "") for kind in kinds])

    def grant(self, user: str, role: PrincipalRole, scope: AclScope) -> None:
        """Gives a user the ACLs of a role, as `tailrace cluster acls` prints them."""
        self._change(
            [
                AclBinding(
                    _KINDS[acl.resource_type],
                    acl.name,
                    _PATTERNS[acl.pattern_type],
                    f"User:{user}",
                    "*",
                    AclOperation[re.sub("(?<=[a-z])(?=[A-Z])", "_", operation).upper()],
                    AclPermissionType.ALLOW,
                )
                for acl in acls_of(role, scope)
                for operation in acl.operations
            ]
        )

    def revoke(self, user: str, topic: str, operation: AclOperation) -> list[AclBinding]:
        """Takes a right to a topic from a user; returns the removed ACLs, for `restore`."""
        wanted = AclBindingFilter(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.MATCH,
            f"User:{user}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        (future,) = self.admin.delete_acls([wanted]).values()
        return list(future.result(_TIMEOUT_S))

    def restore(self, bindings: list[AclBinding]) -> None:
        """Creates removed ACLs again."""
        self._change(bindings)

    def _change(self, bindings: list[AclBinding]) -> None:
        for future in self.admin.create_acls(bindings).values():
            future.result(_TIMEOUT_S)


def _acl(user: str, operation: AclOperation, kind: ResourceType, prefix: str) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL
    name = "kafka-cluster" if kind is ResourceType.BROKER else prefix or "*"
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def _new_password(path: Path) -> str:
    password = f"hidden-{secrets.token_hex(12)}"
    path.touch(mode=0o600)
    path.write_text(f"{password}\n")
    return password


@contextmanager
def secured_kafka(*, plaintext: bool = False) -> Iterator[SecuredKafka]:
    """Runs a secured broker over a temporary directory; `plaintext`: with the listener PLAINTEXT too, where everybody
    may do everything."""
    with tempfile.TemporaryDirectory(prefix="tailrace-secured-") as name:
        directory = Path(name)
        authority = CertificateAuthority(directory)
        admin, plain = directory / "admin.password", directory / f"{PLAIN_USER}.password"
        _new_password(admin)
        own = authority.issue(BROKER)
        open_ones = {PLAINTEXT: Listener(own, protocol="PLAINTEXT")} if plaintext else {}
        settings = {"super.users": f"User:{ADMIN};User:{BROKER};User:ANONYMOUS"} if plaintext else {}
        security = BrokerSecurity(
            ca=authority.ca,
            certificate=own,
            admin_password_file=admin,
            plain_users={PLAIN_USER: _new_password(plain)},
            listeners={
                EXPIRED: Listener(authority.issue("expired", valid_for=-timedelta(days=1))),
                SCRAM_ONLY: Listener(authority.issue("scram"), mechanisms=tuple(SCRAM)),
                CERTIFICATES: Listener(authority.issue("certificates"), protocol="SSL"),
                TOKENS: Listener(authority.issue("tokens"), mechanisms=("OAUTHBEARER",)),
                **open_ones,
            },
        )
        with TokenServer(directory, authority.issue("token-server")) as tokens:
            jwks = tokens.jwks.as_uri()
            options = [_LOG_DECISIONS, f"-D{_ALLOWED_URLS}={jwks}"]
            settings |= _validation_of_tokens(jwks)
            with EmbeddedKafka(security=security, settings=settings, jvm_options=options) as kafka:
                yield SecuredKafka(kafka, authority, directory, tokens)


def _validation_of_tokens(jwks: str) -> dict[str, str]:
    listener = f"listener.name.{TOKENS.lower()}"
    mechanism = f"{listener}.oauthbearer"
    return {
        f"{mechanism}.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
        f"{mechanism}.sasl.server.callback.handler.class": f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
        # A connection ends with its token, unless the client has sent a newer one.
        f"{mechanism}.connections.max.reauth.ms": "3600000",
        f"{listener}.sasl.oauthbearer.jwks.endpoint.url": jwks,
        f"{listener}.sasl.oauthbearer.expected.issuer": ISSUER,
        f"{listener}.sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{listener}.sasl.oauthbearer.clock.skew.seconds": "0",
    }


CLUSTER_ROLES: Final = {
    "": (PrincipalRole.SUBMITTER, PrincipalRole.AUDITOR),
    "jobmanager": (PrincipalRole.JOBMANAGER,),
    "taskmanager": (PrincipalRole.TASKMANAGER,),
    "tasks": (PrincipalRole.TASKS,),
}
"""The principals of a cluster, by their options: `kafka.<role>.sasl.username`; without a role: of commands."""


def add_cluster_users(secured: SecuredKafka, scope: AclScope) -> dict[str, KafkaConnection]:
    """Creates a user for each role of a cluster, with the ACLs of the role; returns how each connects."""
    users = {}
    for role, principals in CLUSTER_ROLES.items():
        user = f"{scope.cluster}-{role or 'commands'}"
        users[role] = secured.add_user(user)
        for principal in principals:
            secured.grant(user, principal, scope)
    return users


def yaml_of(users: Mapping[str, KafkaConnection]) -> str:
    """Returns the lines of tailrace.yaml for the users of a cluster."""
    lines = [f"bootstrap.servers: {users[''].bootstrap_servers}"]
    for role, user in users.items():
        prefix = f"kafka.{role}." if role else "kafka."
        names = ("sasl.username", "sasl.password-file") if role else tuple(user.properties)
        lines += [f"{prefix}{name}: {user.properties[name]}" for name in names]
    return "\n".join(lines) + "\n"
