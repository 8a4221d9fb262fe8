"""Tenants: teams that submit jobs through topics of their own, and what each of them may do.

`dispatcher.tenants` names them. The other options belong to one tenant, whose name is a part of the key. A name has no
`_`, so a variable of the environment has one key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from ....infra.config.option_types import INT, OptionType, optional, pattern, unlimited
from ....infra.config.options import ConfigOption
from .kinds import EVERYONE, MASTER

MAX_NAME_LENGTH = 24
"""So that a job id has room for the name and 128 random bits."""
TENANT_NAME = rf"[a-z0-9][a-z0-9-]{{0,{MAX_NAME_LENGTH - 1}}}"
"""The regular expression of a name."""
_NAME = re.compile(TENANT_NAME)
_KEY = re.compile(r"dispatcher\.tenant\.([a-z0-9][a-z0-9-]*)\.([a-z-]+)")
_WANTED = f"1 to {MAX_NAME_LENGTH} lower case letters, digits and '-'"
MAX_TENANTS = 100
"""Each tenant has a topic, and requests that wait in the memory of the leader."""


def is_tenant(text: str) -> bool:
    """Whether the text may be the name of a tenant."""
    return _NAME.fullmatch(text) is not None


def job_id_prefix(tenant: str) -> str:
    """Returns how the job ids begin that only this tenant uses; empty for no tenant. So the names of the topics of its
    jobs have a prefix, and an ACL for them lets the tenant read what its jobs print."""
    return f"{tenant}_" if tenant else ""


def _read_names(text: str) -> tuple[str, ...]:
    if text in ("", "none"):
        return ()
    names = tuple(name.strip() for name in text.split(";"))
    if not all(map(is_tenant, names)) or len(set(names)) < len(names) or len(names) > MAX_TENANTS:
        raise ValueError(text)
    return names


TENANTS: ConfigOption[tuple[str, ...]] = ConfigOption(
    key="dispatcher.tenants",
    type=OptionType(
        f"none, or up to {MAX_TENANTS} names with ';' between them",
        f"none, or up to {MAX_TENANTS} names with ';' between them, each of {_WANTED}",
        _read_names,
        lambda names: ";".join(names) or "none",
    ),
    default=(),
    doc="Teams that submit jobs through topics of their own, such as `payments;search`: "
    "`<cluster.id>.submissions.payments` and `<cluster.id>.submissions.search`. See [tenants](tenants.md).",
    scopes=MASTER,
    ours=True,
)
TENANT_MAX_JOBS: ConfigOption[int | None] = ConfigOption(
    key="dispatcher.tenant.<name>.max-jobs",
    type=optional(INT),
    default=None,
    at_least=1,
    doc="How many jobs of the tenant may exist that have not ended. Further submissions are rejected. `none`: as many "
    "as dispatcher.max-jobs-per-client.",
    scopes=MASTER,
    ours=True,
)
TENANT_MAX_SLOTS: ConfigOption[int | None] = ConfigOption(
    key="dispatcher.tenant.<name>.max-slots",
    type=unlimited(INT),
    default=None,
    at_least=1,
    doc="How many slots the jobs of the tenant that have not ended may require together. A job that requires more than "
    "what is left is rejected.",
    scopes=MASTER,
    ours=True,
)
TENANT_MAX_REQUESTS: ConfigOption[int | None] = ConfigOption(
    key="dispatcher.tenant.<name>.max-requests-per-minute",
    type=unlimited(INT),
    default=None,
    at_least=1,
    at_most=100_000,
    doc="How many requests of the tenant are admitted in any minute. Further ones wait in the tenant's topic.",
    scopes=MASTER,
    ours=True,
)
TENANT_JOB_NAME_PREFIX: ConfigOption[str] = ConfigOption(
    key="dispatcher.tenant.<name>.job-name-prefix",
    type=pattern("up to 100 printable characters", lambda text: len(text) <= 100 and text.isprintable()),
    default="",
    doc="How the names of the tenant's jobs begin. A job with another name is rejected.",
    scopes=MASTER,
    ours=True,
)
TENANT_OPTIONS: tuple[ConfigOption[Any], ...] = (
    TENANT_MAX_JOBS,
    TENANT_MAX_SLOTS,
    TENANT_MAX_REQUESTS,
    TENANT_JOB_NAME_PREFIX,
)
"""The options that each tenant has; their keys have `<name>` for its name."""
TENANT: ConfigOption[str] = ConfigOption(
    key="tenant",
    type=pattern(f"the name of a tenant ({_WANTED}) or nothing", lambda text: not text or is_tenant(text)),
    default="",
    doc="The tenant for which commands and programs send requests: they write them to "
    "`<cluster.id>.submissions.<tenant>`. Nothing: to `<cluster.id>.submissions`.",
    scopes=EVERYONE,
    ours=True,
)
OPTIONS: tuple[ConfigOption[Any], ...] = (TENANTS, TENANT)
_PROPERTIES = {option.key.rpartition(".")[2]: option for option in TENANT_OPTIONS}
_VARIABLE = re.compile(
    rf"TAILRACE_DISPATCHER_TENANT_([A-Z0-9_]+)_({'|'.join(name.upper().replace('-', '_') for name in _PROPERTIES)})"
)


def option_of(option: ConfigOption[Any], tenant: str) -> ConfigOption[Any]:
    """Returns one of TENANT_OPTIONS for a tenant."""
    return replace(option, key=option.key.replace("<name>", tenant))


def find_tenant_option(key: str) -> ConfigOption[Any] | None:
    """Returns the option of a tenant that the key sets; None for any other key."""
    found = _KEY.fullmatch(key)
    option = None if found is None else _PROPERTIES.get(found[2])
    return None if found is None or option is None else option_of(option, found[1])


def key_of_tenant_variable(name: str) -> str | None:
    """Returns the key that a variable of the environment sets for a tenant; None for any other variable."""
    found = _VARIABLE.fullmatch(name)
    if found is None:
        return None
    tenant, option = (part.lower().replace("_", "-") for part in found.groups())
    return option_of(_PROPERTIES[option], tenant).key


def find_contradictions(configuration: Mapping[str, str]) -> Iterator[str]:
    """Yields a line for each option of a tenant that `dispatcher.tenants` does not name."""
    names = TENANTS.of(configuration)
    for key in configuration:
        found = _KEY.fullmatch(key)
        if found is not None and found[1] not in names:
            yield f"{key} is set, but {TENANTS.key} does not name {found[1]}"
