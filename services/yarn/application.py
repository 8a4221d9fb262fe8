"""What a client submits to YARN, and what YARN reports about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from .application_master import LocalResource

ENDED: Final = ("FINISHED", "FAILED", "KILLED")
"""The states in which an application has ended."""


class ApplicationReport(msgspec.Struct, frozen=True):
    """What YARN says about an application now."""

    state: str
    """ACCEPTED, RUNNING, FINISHED, ..."""
    final_status: str
    diagnostics: str
    host: str
    port: int
    tracking_url: str


class ApplicationRequest(msgspec.Struct, frozen=True):
    """What is submitted. `command` and the values of `environment` are read by the NodeManager's shell."""

    name: str
    queue: str
    memory_mib: int
    vcores: int
    attempts: int
    command: str
    environment: Mapping[str, str]
    local_resources: Mapping[str, LocalResource]
