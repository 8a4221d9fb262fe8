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
    user: str = ""
    log_aggregation: str = ""
    """How far YARN has copied the logs of its containers to HDFS (LogAggregationStatus); empty: not known."""


class StagingDirectory(msgspec.Struct, frozen=True):
    """A directory with the files of an application."""

    application_id: str
    uri: str
    modified_ms: int


class RunningContainer(msgspec.Struct, frozen=True):
    """A container that runs. `node_url`: the web server of its NodeManager."""

    container_id: str
    node_url: str


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
