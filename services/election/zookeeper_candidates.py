"""Reads the candidates of a cluster in ZooKeeper."""

from __future__ import annotations

import contextlib

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from .candidates import Candidate, CandidatesReader, ElectionUnreachable
from .client import UNSETTLED, Client
from .paths import Paths, in_order
from .settings import ZooKeeperSettings


class ZooKeeperCandidatesReader(CandidatesReader):
    """A reader with its own connection, as a context manager. If ZooKeeper stops answering, it returns what it has
    read."""

    def __init__(self, settings: ZooKeeperSettings, *, timeout_s: float = 10.0) -> None:
        """Connects. Raises ElectionUnreachable, ConfigurationError."""
        self._path = Paths.from_settings(settings).latch
        self._client = Client(settings, "candidates")
        try:
            self._client.start(timeout=timeout_s)
        except (KazooException, KazooTimeoutError) as error:
            complaint = self._client.complaints.text or repr(error)
            self._client.discard()
            raise ElectionUnreachable(
                f"ZooKeeper at {settings.quorum} did not list the candidates of {settings.cluster_path}: {complaint}"
            ) from None

    def read(self) -> list[Candidate]:
        found = []
        with contextlib.suppress(NoNodeError, *UNSETTLED):
            for node in in_order(self._client.get_children(self._path)):
                with contextlib.suppress(NoNodeError):
                    content, _ = self._client.get(f"{self._path}/{node}")
                    found.append(Candidate.decode(content))
        return found

    def close(self) -> None:
        self._client.discard()
