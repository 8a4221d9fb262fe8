"""The principals that files name: those of `rest.principals-file`, and the operator of `rest.token-file`.

A line of the principals file has a name, a role (`reader`, `submitter@payments`, `operator`) and a credential:

    ci       submitter@payments  sha256:<the SHA-256 of its token, in hexadecimal>
    gateway  operator            certificate:CN=gateway,O=Example

The file has no secret. A token is random, so its hash need not be slow.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..configuration import Configuration, ConfigurationError
from ..configuration.options.rest import REST_PRINCIPALS_FILE, REST_TOKEN_FILE
from ..configuration.secret_file import read_secret
from .principal import Grant, Principal, Role, is_name

EVERY_CERTIFICATE = "*"
"""Stands for every certificate that the authorities have issued."""
_LINE = re.compile(r"(\S+)\s+(\S+)\s+(sha256|certificate):(.+)")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Credentials:
    """`tokens`: SHA-256 of a token -> its principal. `certificates`: subject -> its principal; None: every certificate
    of the authorities is an operator's."""

    tokens: Mapping[str, Principal]
    certificates: Mapping[str, Principal] | None = None

    def find_token(self, token: bytes) -> Principal | None:
        """Returns the principal of a token. The time that this takes says nothing about other tokens: only the hash is
        compared."""
        return self.tokens.get(hashlib.sha256(token).hexdigest())

    def find_certificate(self, subject: str) -> Principal | None:
        """Returns the principal of a verified certificate."""
        if self.certificates is None:
            return Principal(subject, Grant(Role.OPERATOR))
        named = self.certificates.get(subject)
        if named is None and (anyone := self.certificates.get(EVERY_CERTIFICATE)) is not None:
            return Principal(subject, anyone.grant)
        return named


def credential_files(configuration: Configuration) -> list[Path]:
    """Returns the files that credentials are read from."""
    names = [configuration.get(option) for option in (REST_TOKEN_FILE, REST_PRINCIPALS_FILE)]
    return [Path(name) for name in names if name is not None]


def read_credentials(configuration: Configuration) -> Credentials:
    """Reads the files. Raises ConfigurationError."""
    tokens: dict[str, Principal] = {}
    certificates: dict[str, Principal] = {}
    token = read_secret(configuration, REST_TOKEN_FILE, "token")
    if token is not None:
        tokens[hashlib.sha256(token).hexdigest()] = Principal("operator", Grant(Role.OPERATOR))
    name = configuration.get(REST_PRINCIPALS_FILE)
    if name is None:
        return Credentials(tokens)
    for number, line in enumerate(_read_lines(name), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            principal, kind, value = _parse(line)
            known = tokens if kind == "sha256" else certificates
            if value in known:
                raise ValueError(f"{known[value].name} has this {_NOUNS[kind]} already")
        except ValueError as error:
            raise ConfigurationError(
                [f"{REST_PRINCIPALS_FILE.key}: line {number} of {name}: {error}"]
            ) from None
        known[value] = principal
    return Credentials(tokens, certificates)


_NOUNS = {"sha256": "token", "certificate": "certificate"}


def _read_lines(name: str) -> list[str]:
    try:
        with Path(name).open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise ValueError(f"it has more than {_MAX_BYTES:,} bytes")
        return content.decode().splitlines()
    except (OSError, ValueError) as error:
        raise ConfigurationError([f"{REST_PRINCIPALS_FILE.key}: {name} can't be read: {error}"]) from None


def _parse(line: str) -> tuple[Principal, str, str]:
    """Returns the principal, and the kind and value of its credential. Messages don't repeat what may be a token."""
    found = _LINE.fullmatch(line.strip())
    if found is None:
        raise ValueError("a line has a name, a role, and sha256:<hash of a token> or certificate:<subject>")
    name, grant, kind, value = found.groups()
    if not is_name(name):
        raise ValueError("the name has more than 128 characters, or control characters")
    if kind == "sha256" and _SHA256.fullmatch(value) is None:
        raise ValueError("sha256: has 64 lower case hexadecimal digits; `sha256sum` prints them")
    return Principal(name, Grant.parse(grant)), kind, value
