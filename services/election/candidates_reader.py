"""Reads the candidates for a role, the leader included."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Self

from kazoo.exceptions import NoNodeError

from .client import UNSETTLED, Client
from .paths import Paths, in_order
from .settings import ZooKeeperSettings


class CandidatesReader:
    """A reader with its own connection, as a context manager. Raises KazooTimeoutError if ZooKeeper does not answer in
    time."""

    def __init__(self, settings: ZooKeeperSettings, *, timeout_s: float = 10.0) -> None:
        self._paths = Paths.from_settings(settings)
        self._client = Client(settings, "contenders")
        try:
            self._client.start(timeout=timeout_s)
        except BaseException:
            self._client.discard()
            raise

    def candidates_of(self, role: str) -> list[str]:
        """Returns the addresses (host:pid) of the candidates for a role, the next leader first."""
        path, found = self._paths.latch(role), []
        with contextlib.suppress(NoNodeError, *UNSETTLED):
            for node in in_order(self._client.get_children(path)):
                with contextlib.suppress(NoNodeError):
                    content, _ = self._client.get(f"{path}/{node}")
                    found.append(content.decode("utf-8", "replace"))
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.discard()
