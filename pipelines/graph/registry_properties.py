"""The properties of a schema registry's client that a program may set: names of files, and no secrets.

The names are those of Confluent's client. A secret is given as a file: the first line of the file that
`bearer.auth.token-file` names is the value of `bearer.auth.token`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

FILE_SUFFIX: Final = "-file"
_PLAIN: Final = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "timeout",
    "bearer.auth.credentials.source",
    "bearer.auth.logical.cluster",
    "bearer.auth.identity.pool.id",
    "bearer.auth.client.id",
    "bearer.auth.scope",
    "bearer.auth.issuer.endpoint.url",
)
_SECRET: Final = ("basic.auth.user.info", "bearer.auth.token", "bearer.auth.client.secret")


def find_registry_errors(properties: Mapping[str, str]) -> Iterator[str]:
    """Yields one line for each property that cannot be set."""
    for name in properties:
        if name in _SECRET:
            yield (
                f"the registry's property {name} is a secret, and would stay in the cluster's log for ever: write it"
                f" into a file on every machine, and set {name}{FILE_SUFFIX} to the path of the file"
            )
        elif name not in _PLAIN and name.removesuffix(FILE_SUFFIX) not in _SECRET:
            known = ", ".join((*_PLAIN, *(f"{secret}{FILE_SUFFIX}" for secret in _SECRET)))
            yield f"the registry has no property {name!r}, only {known}"


def read_registry_properties(properties: Mapping[str, str]) -> dict[str, Any]:
    """Returns the configuration of Confluent's client, with the present secrets. Raises ValueError."""
    found: dict[str, Any] = {}
    for name, value in properties.items():
        if name == "timeout":
            found[name] = float(value)
        elif name.endswith(FILE_SUFFIX):
            found[name.removesuffix(FILE_SUFFIX)] = _first_line(name, value)
        else:
            found[name] = value
    if "bearer.auth.token" in found:
        found.setdefault("bearer.auth.credentials.source", "STATIC_TOKEN")
    return found


def _first_line(name: str, path: str) -> str:
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{name}: {path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    if not lines or not lines[0].strip():
        raise ValueError(f"{name}: the first line of {path} is empty")
    return lines[0].strip()
