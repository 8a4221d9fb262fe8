"""The feature levels that this release knows; services/core/feature_level.py has their meaning."""

from __future__ import annotations

from typing import Final

FIRST_LEVEL: Final = 1
FEATURE_LEVEL: Final = 1
"""The highest level that this release knows."""
