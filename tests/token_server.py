"""A token endpoint of OAuth 2.0 with client credentials (RFC 6749, section 4.4), over HTTPS on loopback."""

from __future__ import annotations

import base64
import json
import secrets
import ssl
import time
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from http_server import HttpHandler, HttpServer
from joserfc import jwt
from joserfc.jwk import RSAKey

ISSUER: Final = "https://tokens.test"
AUDIENCE: Final = "kafka"
_ALGORITHM: Final = "RS256"


class OAuthClient(NamedTuple):
    """A client that gets tokens, with itself as the subject."""

    secret: str
    lifetime_s: int


class TokenServer(HttpServer):
    """Issues signed tokens. The public key is in `jwks`, a JWKS file."""

    def __init__(self, directory: Path, certificate: Path) -> None:
        """`directory`: for the file; `certificate`: of the server."""
        self._key = RSAKey.generate_key(2048, {"kid": "test", "use": "sig", "alg": _ALGORITHM})
        self.jwks = directory / "jwks.json"
        self.jwks.write_text(json.dumps({"keys": [self._key.as_dict(private=False)]}))
        self.key_requests = 0
        """How often somebody has asked for the keys, at `keys_url`."""
        self._clients: dict[str, OAuthClient] = {}
        self.expiries: dict[str, list[int]] = {}
        """By client: when each of its tokens expires, in seconds since the epoch."""
        outer = self

        class Handler(HttpHandler):
            def do_POST(self) -> None:
                self.read_body()
                self.answer_json(*outer._answer(self.headers.get("Authorization") or ""))

            def do_GET(self) -> None:
                outer.key_requests += 1
                status = 200 if self.path == "/jwks" else 302
                self.answer(status, outer.jwks.read_bytes(), Location="/jwks")

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        super().__init__(Handler, context)
        self.keys_url = f"{self.url}/jwks"
        self.url += "/token"

    def add_client(self, name: str, lifetime_s: int = 3600) -> str:
        """Returns the secret of a new client; `lifetime_s` is that of its tokens."""
        secret = f"hidden-{secrets.token_hex(12)}"
        self._clients[name] = OAuthClient(secret, lifetime_s)
        self.expiries[name] = []
        return secret

    def _answer(self, authorization: str) -> tuple[int, dict[str, Any]]:
        encoded = authorization.removeprefix("Basic ")
        name, _, secret = base64.b64decode(encoded).decode().partition(":")
        client = self._clients.get(unquote(name))
        if client is None or client.secret != unquote(secret):
            return 401, {"error": "invalid_client", "error_description": f"wrong secret {secret}"}
        now = int(time.time())
        expiry = now + client.lifetime_s
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": name, "scope": "kafka", "iat": now, "exp": expiry}
        token = jwt.encode({"alg": _ALGORITHM, "kid": "test"}, claims, self._key)
        self.expiries[name].append(expiry)
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": client.lifetime_s}
