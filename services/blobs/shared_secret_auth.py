"""Authentication at a BlobServer with the cluster's shared secret, if it has one (`blob.secret-file`).

    client -> HELLO
    server -> PROVE, challenge
    client -> PROOF, nonce, HMAC-SHA256(secret, "client", challenge, nonce)
    server -> OK, HMAC-SHA256(secret, "server", challenge, nonce)

Both sides prove that they know the secret, and neither sends it. Challenge and nonce are drawn for each connection, so
that nothing can be replayed. The client proves first, so that a server gives an unknown client nothing to guess the
secret by. The rest of the connection is neither encrypted nor signed.
"""

from __future__ import annotations

import hmac
import secrets
from enum import StrEnum
from pathlib import Path
from typing import Final

from ..configuration import Configuration, ConfigurationError
from ..configuration.options.blob import BLOB_SECRET_FILE

NONCE: Final = 32
"""Bytes of a challenge or nonce."""
MIN_SECRET_LENGTH: Final = 16


class Side(StrEnum):
    """Who proves: one's proof is of no use to the other."""

    CLIENT = "client"
    SERVER = "server"


class SharedSecret:
    """What all processes of a cluster know, and nobody else. It is not shown."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    @classmethod
    def from_configuration(cls, configuration: Configuration) -> SharedSecret | None:
        """As configured; None where there is to be none. Raises ConfigurationError for a file that holds none."""
        name = configuration.get(BLOB_SECRET_FILE)
        if name is None:
            return None
        try:
            line = Path(name).read_bytes().partition(b"\n")[0].strip()
        except OSError as error:
            raise ConfigurationError([f"{BLOB_SECRET_FILE.key}: {name} can't be read: {error}"]) from None
        if len(line) < MIN_SECRET_LENGTH:
            wanted = f"a secret has at least {MIN_SECRET_LENGTH}: `openssl rand -hex 32` makes one"
            raise ConfigurationError(
                [f"{BLOB_SECRET_FILE.key}: the first line of {name} has {len(line)} bytes, but {wanted}"]
            )
        return cls(line)

    def proof(self, side: Side, challenge: bytes, nonce: bytes) -> bytes:
        """What only somebody who knows the secret can say to that challenge."""
        return hmac.digest(self._content, b"%b\0%b%b" % (side.encode(), challenge, nonce), "sha256")

    def is_valid_proof(self, proof: bytes, side: Side, challenge: bytes, nonce: bytes) -> bool:
        """Whether that is it."""
        fit = len(challenge) == NONCE and len(nonce) == NONCE
        return hmac.compare_digest(proof, self.proof(side, challenge, nonce)) and fit

    def __repr__(self) -> str:
        return "SharedSecret(...)"


def random_nonce() -> bytes:
    """A challenge or nonce."""
    return secrets.token_bytes(NONCE)
