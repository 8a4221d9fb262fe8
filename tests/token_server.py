"""A token endpoint of OAuth 2.0 with client credentials (RFC 6749, section 4.4), over HTTPS on loopback."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from joserfc import jwt
from joserfc.jwk import RSAKey

ISSUER: Final = "https://tokens.test"
AUDIENCE: Final = "kafka"
_ALGORITHM: Final = "RS256"


class OAuthClient(NamedTuple):
    """A client that gets tokens, with itself as the subject."""

    secret: str
    lifetime_s: int


class TokenServer:
    """Issues signed tokens. The public key is in `jwks`, a JWKS file."""

    def __init__(self, directory: Path, certificate: Path) -> None:
        self._key = RSAKey.generate_key(2048, {"kid": "test", "use": "sig", "alg": _ALGORITHM})
        self.jwks = directory / "jwks.json"
        self.jwks.write_text(json.dumps({"keys": [self._key.as_dict(private=False)]}))
        self.key_requests = 0
        """How often somebody has asked for the keys, at `keys_url`."""
        self._clients: dict[str, OAuthClient] = {}
        self.expiries: dict[str, list[int]] = {}
        """By client: when each of its tokens expires, in seconds since the epoch."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, found = outer._answer(self.headers.get("Authorization") or "")
                body = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                outer.key_requests += 1
                self.send_response(200 if self.path == "/jwks" else 302)
                body = outer.jwks.read_bytes()
                self.send_header("Location", "/jwks")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}/token"
        self.keys_url = f"https://127.0.0.1:{self._server.server_port}/jwks"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

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

    def start(self) -> None:
        """Starts to listen."""
        self._thread.start()

    def close(self) -> None:
        """Ends."""
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def token_server(directory: Path, certificate: Path) -> Iterator[TokenServer]:
    """Runs a server with the certificate, and with its JWKS file in the directory."""
    server = TokenServer(directory, certificate)
    server.start()
    try:
        yield server
    finally:
        server.close()
