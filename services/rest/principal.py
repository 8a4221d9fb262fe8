"""Who asks: a principal with a role and, if it is of a team, a tenant.

A reader reads. A submitter also submits jobs, and controls those of its tenant; without a tenant, the jobs that have
none. An operator may do everything, for all tenants. A tenant limits what a principal changes, and which uploaded
programs it sees; every reader sees all else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum

from ..configuration.options.tenants import is_tenant
from .errors import Forbidden

_NAME = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,128}")


class Role(IntEnum):
    """What a principal may do; a greater role may do what a smaller one may."""

    READER = 1
    SUBMITTER = 2
    OPERATOR = 3

    @property
    def label(self) -> str:
        """Its name in files, claims and messages."""
        return self.name.lower()


_BY_LABEL = {role.label: role for role in Role}


@dataclass(frozen=True, slots=True)
class Grant:
    """A role, and the tenant that it is limited to; empty: none. An operator has no tenant."""

    role: Role
    tenant: str = ""

    @classmethod
    def parse(cls, text: str) -> Grant:
        """Reads `ROLE` or `ROLE@TENANT`, as `tailrace cluster acls` does. Raises ValueError with one line."""
        label, at, tenant = text.partition("@")
        role = _BY_LABEL.get(label)
        if role is None or (at and not is_tenant(tenant)):
            raise ValueError(
                f"{text[:80]!r} is not reader, submitter or operator, or such a role with @TENANT"
            )
        if tenant and role is Role.OPERATOR:
            raise ValueError(f"{text[:80]!r}: an operator is of all tenants; submitter@{tenant} is of one")
        return cls(role, tenant)

    def __str__(self) -> str:
        return f"{self.role.label}@{self.tenant}" if self.tenant else self.role.label


@dataclass(frozen=True, slots=True)
class Principal:
    """A client of a REST server, by the name that its token, certificate or issuer gives it."""

    name: str
    grant: Grant

    def check(self, role: Role, request: str) -> None:
        """Raises Forbidden if the principal has less than the role. `request`: method and path."""
        if self.grant.role < role:
            raise Forbidden(
                f"{self.name} is {self.grant.role.label}, and {request} needs the role {role.label}."
            )

    def check_job(self, job_id: str, tenant: str) -> None:
        """Raises Forbidden if the principal may not control a job of the tenant."""
        if self.grant.role is Role.OPERATOR or self.grant.tenant == tenant:
            return
        whose = f"is of tenant {tenant}" if tenant else "is of no tenant"
        raise Forbidden(f"Job {job_id} {whose}, and {self.name} is {self.grant}.")

    def sees_program(self, tenant: str) -> bool:
        """Whether it may see and run the programs of a tenant; empty: those of none."""
        return self.grant.role is Role.OPERATOR or self.grant.tenant == tenant

    def check_disposal(self) -> None:
        """Raises Forbidden if the principal may delete no savepoints: only the savepoint itself says whose it is, and
        the leader compares that with the tenant of a request, if it has one."""
        if self.grant.role is not Role.OPERATOR and not self.grant.tenant:
            raise Forbidden(
                f"{self.name} is {self.grant}, and only an operator, or a submitter of its tenant, deletes savepoints."
            )


ANONYMOUS = Principal("anonymous", Grant(Role.OPERATOR))
"""Everyone, at a server without authentication."""
_current: ContextVar[Principal] = ContextVar("principal", default=ANONYMOUS)


def is_name(text: str) -> bool:
    """Whether the text may be the name of a principal: it is printed, and stored in the log."""
    return _NAME.fullmatch(text) is not None


def current_principal() -> Principal:
    """Returns the principal of the request that this context belongs to. So no write can forget it on its way."""
    return _current.get()


@contextmanager
def acting_as(principal: Principal) -> Iterator[None]:
    """Sets the principal of this context, and of the threads that it starts for a request."""
    token = _current.set(principal)
    try:
        yield
    finally:
        _current.reset(token)
