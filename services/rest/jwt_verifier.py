"""Verifies tokens of an OpenID Connect provider: signed JWTs (RFC 7519), with the keys that it publishes (RFC 7517).

Only signatures of asymmetric keys count: with a shared secret, whoever checks a token could also write one. Keys are
cached, and fetched again when a token names a key that is not known, at most every ten seconds. So a provider may
replace its keys, and nobody can make the server ask it all the time. While the provider is away, the cached keys serve
for a day.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from urllib.error import URLError

from ...infra.config.option_types import SECOND
from ...infra.logging_setup import logger
from ...infra.redirects import NoRedirects
from ...infra.tls import UnusableTlsFile, client_context
from ..configuration import Configuration, ConfigurationError
from ..configuration.options.rest import (
    REST_JWT_ALGORITHMS,
    REST_JWT_AUDIENCE,
    REST_JWT_ISSUER,
    REST_JWT_JWKS_CA,
    REST_JWT_JWKS_URL,
    REST_JWT_LEEWAY,
    REST_JWT_PRINCIPAL_CLAIM,
    REST_JWT_ROLE_CLAIM,
)
from .errors import Forbidden, Unavailable
from .principal import Grant, Principal, is_name

_log = logger(__name__)
_FETCH_TIMEOUT_S: Final = 5.0
_MAX_JWKS_BYTES: Final = 1 << 20
_PAUSE_S: Final = 10.0
_MAX_AGE_S: Final = 300.0
_MAX_AGE_WITHOUT_PROVIDER_S: Final = 86_400.0
_MAX_HEADER_BYTES: Final = 8 << 10
_RETRY: Final = {"Retry-After": "10"}

Jwks = Mapping[str, Any]
"""A JSON Web Key Set."""


class JwksCache:
    """The keys of a provider; thread-safe. `fetch` raises OSError or ValueError."""

    def __init__(self, fetch: Callable[[], Jwks], clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: Any = None
        self._fetched_at = 0.0
        self._tried_at: float | None = None
        self._failure = "another request fetches them"

    def find(self, key_id: str | None) -> Any:
        """Returns the keys, which may not have this one. Raises Unavailable if there are none."""
        keys, age = self._keys, self._clock() - self._fetched_at
        is_wanted = keys is None or age > _MAX_AGE_S or not _has_key(keys, key_id)
        # A thread fetches; others do not wait for it.
        if is_wanted and self._may_try() and self._lock.acquire(blocking=False):
            try:
                self._update()
            finally:
                self._lock.release()
            keys, age = self._keys, self._clock() - self._fetched_at
        if keys is None or age > _MAX_AGE_WITHOUT_PROVIDER_S:
            raise Unavailable(f"The keys that verify the token can't be fetched: {self._failure}.", _RETRY)
        return keys

    def _may_try(self) -> bool:
        return self._tried_at is None or self._clock() - self._tried_at >= _PAUSE_S

    def _update(self) -> None:
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        self._tried_at = self._clock()
        try:
            found = [each for each in self._fetch()["keys"] if each.get("kty") != "oct"]
            self._keys = KeySet.import_key_set({"keys": found})
            self._fetched_at = self._clock()
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, JoseError) as error:
            self._failure = str(error)[:200] or type(error).__name__
            _log.warning("the keys that verify tokens can't be fetched", error=self._failure)


class JwtVerifier:
    """Verifies tokens; thread-safe."""

    def __init__(
        self,
        keys: JwksCache,
        *,
        issuer: str,
        audience: str,
        algorithms: Iterable[str],
        leeway_s: int = 30,
        role_claim: str = "tailrace",
        principal_claim: str = "sub",
    ) -> None:
        from joserfc.jws import JWSRegistry
        from joserfc.jwt import JWTClaimsRegistry

        self._keys = keys
        self._algorithms = list(algorithms)
        # Providers add fields to the header, such as x5t. A critical one that is not known is refused all the same.
        self._signatures = JWSRegistry(algorithms=self._algorithms, strict_check_header=False)
        self._signatures.max_header_length = _MAX_HEADER_BYTES
        self._claims = JWTClaimsRegistry(
            leeway=leeway_s,
            iss={"essential": True, "value": issuer},
            aud={"essential": True, "value": audience},
            exp={"essential": True},
        )
        self._role_claim = role_claim
        self._principal_claim = principal_claim

    @classmethod
    def from_configuration(cls, configuration: Configuration) -> JwtVerifier | None:
        """Returns None if the server takes no such tokens. Raises ConfigurationError."""
        url = configuration.get(REST_JWT_JWKS_URL)
        if url is None:
            return None
        wanted = {option: configuration.get(option) for option in (REST_JWT_ISSUER, REST_JWT_AUDIENCE)}
        for option, value in wanted.items():
            if value is None:
                raise ConfigurationError([f"{REST_JWT_JWKS_URL.key} is set, so {option.key} must be set too"])
        algorithms: tuple[str, ...] = configuration.get(REST_JWT_ALGORITHMS)
        try:
            tls = client_context(configuration.get(REST_JWT_JWKS_CA))
        except UnusableTlsFile as error:
            raise ConfigurationError([f"{REST_JWT_JWKS_CA.key}: {error}"]) from None
        return cls(
            JwksCache(lambda: fetch_jwks(url, tls)),
            issuer=wanted[REST_JWT_ISSUER] or "",
            audience=wanted[REST_JWT_AUDIENCE] or "",
            algorithms=algorithms,
            leeway_s=configuration.get(REST_JWT_LEEWAY) // SECOND,
            role_claim=configuration.get(REST_JWT_ROLE_CLAIM),
            principal_claim=configuration.get(REST_JWT_PRINCIPAL_CLAIM),
        )

    def verify(self, token: str) -> Principal:
        """Returns the principal of a token. Raises ValueError with a sentence for one that is not valid, Forbidden for
        one without a role, and Unavailable without keys."""
        from joserfc import jws, jwt
        from joserfc.errors import BadSignatureError, ExpiredTokenError, InvalidClaimError, JoseError

        try:
            header = jws.extract_compact(token.encode(), registry=self._signatures).headers()
            key_id = header.get("kid")
            keys = self._keys.find(key_id if isinstance(key_id, str) else None)
            claims = jwt.decode(token, keys, self._algorithms, self._signatures).claims
            self._claims.validate(claims)
        except ExpiredTokenError:
            raise ValueError("The token has expired.") from None
        except BadSignatureError:
            raise ValueError("The signature of the token is wrong.") from None
        except InvalidClaimError as error:
            raise ValueError(f"The token is not for this server: {error.description}.") from None
        except (JoseError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"The token can't be verified: {str(error)[:200]}.") from None
        name = claims.get(self._principal_claim)
        if not isinstance(name, str) or not is_name(name):
            raise ValueError(f"The token has no claim {self._principal_claim} that names a principal.")
        return Principal(name, self._find_grant(name, claims))

    def _find_grant(self, name: str, claims: Mapping[str, Any]) -> Grant:
        """Returns the greatest role of the claim: a text or a list of texts, of which others are ignored."""
        value = _find_claim(claims, self._role_claim)
        texts = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
        found = [grant for text in texts if (grant := _parse(text)) is not None]
        greatest = {grant for grant in found if grant.role == max(each.role for each in found)}
        if not greatest:
            raise Forbidden(f"{name} has no role: its token has no claim {self._role_claim} with one.")
        if len(greatest) > 1:
            raise Forbidden(
                f"{name} has several tenants, and a request is for one: {sorted(map(str, greatest))}."
            )
        return greatest.pop()


def fetch_jwks(url: str, tls: ssl.SSLContext, timeout_s: float = _FETCH_TIMEOUT_S) -> Jwks:
    """Fetches a key set. Raises OSError, ValueError."""
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=tls), NoRedirects)
    try:
        with opener.open(url, timeout=timeout_s) as answer:
            content = answer.read(_MAX_JWKS_BYTES + 1)
    except URLError as error:
        raise OSError(f"{url}: {error.reason}") from None
    if len(content) > _MAX_JWKS_BYTES:
        raise ValueError(f"{url} has more than {_MAX_JWKS_BYTES:,} bytes")
    found: Jwks = json.loads(content)
    return found


def _has_key(keys: Any, key_id: str | None) -> bool:
    return key_id is None or any(key.kid == key_id for key in keys)


def _find_claim(claims: Mapping[str, Any], name: str) -> Any:
    """Returns a claim; `realm_access.roles` is `roles` in `realm_access`, if no claim has the whole name."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _parse(text: object) -> Grant | None:
    try:
        return Grant.parse(text) if isinstance(text, str) else None
    except ValueError:
        return None
