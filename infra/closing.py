"""Objects that are closed at the end of a `with` statement."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closeable:
    """A base class: the context gives the object, and its end calls `close`."""

    def close(self) -> None:
        """Releases what the object holds."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
