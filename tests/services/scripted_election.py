"""Mandates that a test gives and takes, rightly or wrongly."""

from __future__ import annotations

import threading
from collections.abc import Mapping


class GivenMandates:
    """Of one process. `stands`: the roles that it contends for -> how often it began to."""

    elected_by = "a test"

    def __init__(self) -> None:
        self.suspended = False
        self.stands: dict[str, int] = {}
        self.confirmed: dict[str, int] = {}
        self.for_ever: list[str] = []
        self._began: dict[str, int] = {}
        self._granted: Mapping[str, int | None] = {}
        self._lock = threading.Lock()

    def give(self, *roles: str, epoch: int | None = None) -> None:
        """Whether it contends for them or not."""
        with self._lock:
            self._granted = {**self._granted, **dict.fromkeys(roles, epoch)}

    def take(self, *roles: str) -> None:
        """Those, or all."""
        with self._lock:
            gone = roles or tuple(self._granted)
            self._granted = {each: epoch for each, epoch in self._granted.items() if each not in gone}

    def join(self, role: str) -> None:
        with self._lock:
            if role not in self.stands:
                self._began[role] = self.stands[role] = self._began.get(role, 0) + 1

    def leave(self, role: str, *, for_ever: bool = False) -> None:
        self.take(role)
        with self._lock:
            self.stands.pop(role, None)
            if for_ever:
                self.for_ever.append(role)

    def grants(self) -> Mapping[str, int | None]:
        return self._granted

    def confirm_leadership(self, role: str, epoch: int) -> None:
        self.confirmed[role] = epoch

    def close(self) -> None:
        self.take()
