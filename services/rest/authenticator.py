"""Finds the principal of a request: by its bearer token (RFC 6750), else by the client's certificate.

Credentials are read again when their files change. Files that can't be read then leave the earlier ones in force.
"""

from __future__ import annotations

from ...infra.file_versions import FileWatch
from ..configuration import Configuration, ConfigurationError
from .credentials import credential_files, read_credentials
from .errors import Unauthorized
from .jwt_verifier import JwtVerifier
from .principal import Principal

_CHALLENGE = 'Bearer realm="tailrace"'


class Authenticator:
    """Used from one thread. Raises ConfigurationError for a file that can't be used."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._credentials = read_credentials(configuration)
        self._watch = FileWatch(credential_files(configuration), self._is_readable)
        self._jwt = JwtVerifier.from_configuration(configuration)

    async def authenticate(self, authorization: str | None, subject: str | None) -> Principal:
        """Returns who asks. `authorization`: the header; `subject`: that of the client's verified certificate.

        Raises Unauthorized; Forbidden for a token of the issuer without a role; Unavailable if its keys can't be
        fetched.
        """
        if self._watch.has_changed():
            self._credentials = read_credentials(self._configuration)
        if authorization is not None:
            return await self._find_bearer(authorization)
        if subject is None:
            raise _refuse("The request needs the header Authorization with `Bearer <token>`.")
        principal = self._credentials.find_certificate(subject)
        if principal is None:
            raise _refuse(f"No line of rest.principals-file has certificate:{subject[:200]}.")
        return principal

    async def _find_bearer(self, authorization: str) -> Principal:
        scheme, _, given = authorization.partition(" ")
        token = given.strip()
        if scheme.lower() != "bearer" or not token:
            raise _refuse("The header Authorization is not `Bearer <token>`.")
        principal = self._credentials.find_token(token.encode())
        if principal is not None:
            return principal
        if self._jwt is None or token.count(".") != 2:
            raise _refuse("The token is not known.", is_invalid=True)
        # Loaded here: a jobmanager that nobody asks does not need it.
        from starlette.concurrency import run_in_threadpool

        try:
            # It may have to fetch keys.
            return await run_in_threadpool(self._jwt.verify, token)
        except ValueError as error:
            raise _refuse(str(error), is_invalid=True) from None

    def _is_readable(self) -> bool:
        try:
            read_credentials(self._configuration)
        except ConfigurationError:
            return False
        return True


def _refuse(message: str, *, is_invalid: bool = False) -> Unauthorized:
    challenge = f'{_CHALLENGE}, error="invalid_token"' if is_invalid else _CHALLENGE
    return Unauthorized(message, {"WWW-Authenticate": challenge})
