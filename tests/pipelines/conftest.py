"""Hypothesis without deadlines: the machine that runs the tests may be busy."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("tailrace", deadline=None)
settings.load_profile("tailrace")
