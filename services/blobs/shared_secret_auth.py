"""Authentication at a BlobServer by the cluster's shared secret, if it has one (`blob.secret-file`).

    client -> HELLO
    server -> PROVE, challenge
    client -> PROOF, nonce, HMAC-SHA256(secret, "client", challenge, nonce)
    server -> OK, HMAC-SHA256(secret, "server", challenge, nonce)

Both sides prove that they know the secret without sending it. Challenge and nonce are random for each connection, which
prevents replays. The client proves first, so that an unknown client gets no material to guess the secret from. The
following messages are neither encrypted nor signed.
"""

from __future__ import annotations

import hmac
import secrets
from enum import StrEnum
from typing import Final

from ..configuration import Configuration
from ..configuration.options.blob import BLOB_SECRET_FILE
from ..configuration.secret_file import read_secret

NONCE: Final = 32
"""The bytes of a challenge or nonce."""


class Side(StrEnum):
    """The side that proves; a proof of one side is not valid for the other."""

    CLIENT = "client"
    SERVER = "server"


class SharedSecret:
    """The shared secret of a cluster's processes. Its repr hides it."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    @classmethod
    def from_configuration(cls, configuration: Configuration) -> SharedSecret | None:
        """Reads the configured secret; None if none is configured. Raises ConfigurationError for an invalid file."""
        secret = read_secret(configuration, BLOB_SECRET_FILE, "secret")
        return None if secret is None else cls(secret)

    def proof(self, side: Side, challenge: bytes, nonce: bytes) -> bytes:
        """Returns the proof for a challenge; it requires the secret."""
        return hmac.digest(self._content, b"%b\0%b%b" % (side.encode(), challenge, nonce), "sha256")

    def is_valid_proof(self, proof: bytes, side: Side, challenge: bytes, nonce: bytes) -> bool:
        """Returns whether the proof is valid."""
        fit = len(challenge) == NONCE and len(nonce) == NONCE
        return hmac.compare_digest(proof, self.proof(side, challenge, nonce)) and fit

    def token(self, use: str) -> bytes:
        """Returns a token for one use, from which nobody learns the secret or another token: text of 64 digits."""
        return hmac.digest(self._content, b"token\0" + use.encode(), "sha256").hex().encode()

    def __repr__(self) -> str:
        return "SharedSecret(...)"


def random_nonce() -> bytes:
    """Returns a random challenge or nonce."""
    return secrets.token_bytes(NONCE)
