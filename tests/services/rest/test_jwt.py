"""Tokens of an OpenID Connect provider: what counts, what does not, and keys that change."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from certificates import CertificateAuthority
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey
from joserfc.jws import JWSRegistry
from token_server import AUDIENCE, ISSUER, TokenServer

from tailrace.infra.tls import client_context
from tailrace.services.configuration import Configuration, ConfigurationError
from tailrace.services.rest.errors import Forbidden, Unavailable
from tailrace.services.rest.jwt_verifier import JwksCache, JwtVerifier, fetch_jwks
from tailrace.services.rest.principal import Grant, Principal, Role

RSA = RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"})
EC = ECKey.generate_key("P-256", {"kid": "ec", "use": "sig"})
STRANGER = RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"})
SHARED = OctKey.generate_key(256, {"kid": "shared"})
KEYS = [RSA.as_dict(private=False), EC.as_dict(private=False), SHARED.as_dict(private=True)]
ANY = JWSRegistry(algorithms=["RS256", "ES256", "HS256"], strict_check_header=False)


def verifier(**options: Any) -> JwtVerifier:
    wanted = {"issuer": ISSUER, "audience": "tailrace", "algorithms": ["RS256", "ES256"], **options}
    return JwtVerifier(JwksCache(lambda: {"keys": KEYS}), **wanted)


def token(key: Any = RSA, alg: str = "RS256", header: Mapping[str, Any] | None = None, **changes: Any) -> str:
    """Returns a token; a claim that is None is left out."""
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": "tailrace", "sub": "ci", "exp": now + 60, "tailrace": "reader", **changes}
    found = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode({"alg": alg, "kid": key.kid, **(header or {})}, found, key, registry=ANY)


def encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def signed_with_public_key() -> str:
    """Returns a token of somebody who hopes that the public key is taken for a shared secret."""
    header = encode(json.dumps({"alg": "HS256", "kid": "rsa"}).encode())
    content = f"{header}.{token().split('.')[1]}"
    return f"{content}.{encode(hmac.digest(RSA.as_pem(private=False), content.encode(), 'sha256'))}"


@pytest.mark.parametrize(("key", "alg"), [(RSA, "RS256"), (EC, "ES256")])
def test_valid_token_names_principal_and_role(key: Any, alg: str) -> None:
    found = verifier().verify(token(key, alg, {"x5t": "of-the-provider"}, tailrace="submitter@payments"))
    assert found == Principal("ci", Grant(Role.SUBMITTER, "payments"))


NOW = int(time.time())


@pytest.mark.parametrize(
    "bad",
    [
        token(exp=NOW - 120),
        token(exp=None),
        token(exp="tomorrow"),
        token(nbf=NOW + 3600),
        token(iss="https://evil.example"),
        token(iss=None),
        token(aud="another"),
        token(aud=None),
        token(sub=None),
        token(sub=""),
        token(sub=7),
        token(sub="a\x1b[2J"),
        token(STRANGER),
        token(SHARED, "HS256"),
        signed_with_public_key(),
        token(header={"kid": "unknown"}),
        token()[:-4] + "AAAA",
        token().partition(".")[0] + "..",
        "a.b.c",
        "..",
        f"{encode(json.dumps({'alg': 'none'}).encode())}.e30.",
        f"{encode(b'[' * 5000)}.e30.AAAA",
    ],
)
def test_token_that_does_not_count_is_refused_in_one_line(bad: str) -> None:
    with pytest.raises(ValueError) as error:
        verifier().verify(bad)
    assert "\n" not in str(error.value)


def test_clock_of_provider_may_differ_by_leeway() -> None:
    late = token(exp=int(time.time()) - 5)
    assert verifier(leeway_s=30).verify(late).name == "ci"
    with pytest.raises(ValueError, match="has expired"):
        verifier(leeway_s=0).verify(late)


@pytest.mark.parametrize(
    ("claim", "value", "grant"),
    [
        ("tailrace", ["offline_access", "reader", "submitter@payments"], "submitter@payments"),
        ("tailrace", "openid operator reader", "operator"),
        ("realm_access.roles", {"roles": ["reader"]}, "reader"),
        ("https://example.com/roles", ["operator"], "operator"),
        ("tailrace", ["submitter@a", "submitter@b"], None),
        ("tailrace", ["operator@payments"], None),
        ("tailrace", [1, {}, None], None),
        ("tailrace", 3, None),
        ("tailrace", None, None),
    ],
)
def test_greatest_role_of_claim_counts(claim: str, value: Any, grant: str | None) -> None:
    name = claim if "://" in claim else claim.partition(".")[0]
    given = token(**{"tailrace": None, name: value})
    if grant is None:
        with pytest.raises(Forbidden):
            verifier(role_claim=claim).verify(given)
    else:
        assert str(verifier(role_claim=claim).verify(given).grant) == grant


class Provider:
    """Its keys, a clock, and how often it was asked."""

    def __init__(self) -> None:
        self.keys = [RSA.as_dict(private=False)]
        self.now = 0.0
        self.asked = 0
        self.is_down = False
        self.cache = JwksCache(self.fetch, lambda: self.now)

    def fetch(self) -> Mapping[str, Any]:
        self.asked += 1
        if self.is_down:
            raise OSError("connection refused")
        return {"keys": self.keys}

    def find(self, key_id: str) -> bool:
        found: KeySet = self.cache.find(key_id)
        return any(key.kid == key_id for key in found)


def test_replaced_key_is_fetched_with_first_token_that_names_it() -> None:
    provider = Provider()
    assert provider.find("rsa")
    provider.keys = [EC.as_dict(private=False)]
    provider.now += 10
    assert provider.find("ec")
    assert not provider.find("rsa")


def test_unknown_keys_do_not_make_server_ask_all_the_time() -> None:
    provider = Provider()
    for number in range(100):
        provider.now += 0.2
        assert not provider.find(f"unknown-{number}")
    assert provider.asked <= 3


def test_cached_keys_count_while_provider_is_away_for_a_day() -> None:
    provider = Provider()
    assert provider.find("rsa")
    provider.is_down = True
    provider.now += 3600
    assert provider.find("rsa")
    provider.now += 86_400
    with pytest.raises(Unavailable, match="connection refused") as error:
        provider.find("rsa")
    assert error.value.headers["Retry-After"]


def test_garbage_of_provider_is_no_key_set() -> None:
    for garbage in ({}, [], {"keys": None}, {"keys": [1]}, {"keys": [{"kty": "RSA", "n": "x"}]}, "keys"):
        cache = JwksCache(lambda found=garbage: found)
        with pytest.raises(Unavailable):
            cache.find("rsa")


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[tuple[TokenServer, CertificateAuthority]]:
    authority = CertificateAuthority(tmp_path)
    with TokenServer(tmp_path, authority.issue("provider")) as running:
        yield running, authority


def test_keys_are_fetched_by_tls_from_configured_address_only(
    provider: tuple[TokenServer, CertificateAuthority],
) -> None:
    server, authority = provider
    trusting = client_context(str(authority.ca))
    assert fetch_jwks(server.keys_url, trusting)["keys"]
    with pytest.raises(OSError):
        fetch_jwks(server.keys_url.replace("/jwks", "/elsewhere"), trusting)
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        fetch_jwks(server.keys_url, client_context(None))


def test_configured_verifier_takes_tokens_of_its_provider(
    provider: tuple[TokenServer, CertificateAuthority],
) -> None:
    server, authority = provider
    options = {
        "rest.jwt.jwks-url": server.keys_url,
        "rest.jwt.jwks-ca": str(authority.ca),
        "rest.jwt.issuer": ISSUER,
        "rest.jwt.audience": AUDIENCE,
        "rest.jwt.role-claim": "role",
    }
    found = JwtVerifier.from_configuration(Configuration(options))
    assert found is not None
    with pytest.raises(ValueError, match="signature"):
        found.verify(token(header={"kid": "test"}, aud=AUDIENCE, role="reader"))
    assert server.key_requests == 1
    del options["rest.jwt.audience"]
    with pytest.raises(ConfigurationError, match=r"rest.jwt.audience must be set too"):
        JwtVerifier.from_configuration(Configuration(options))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rest.jwt.jwks-url", "http://login.example/keys"),
        ("rest.jwt.algorithms", "HS256"),
        ("rest.jwt.algorithms", "RS256;none"),
        ("web.access-control-allow-origin", "evil.example"),
    ],
)
def test_insecure_option_is_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigurationError):
        Configuration({key: value})
