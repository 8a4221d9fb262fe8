"""The error of a wrong expression."""

from __future__ import annotations


class SqlError(ValueError):
    """An expression cannot be read, or does not fit the records."""
