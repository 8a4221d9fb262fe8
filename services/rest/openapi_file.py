"""Writes the OpenAPI document of the REST server into a file, without a cluster: for `make web`.

It has the list of clusters too, which only a history server has.

python -m tailrace.services.rest.openapi_file build/openapi.json
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

from ..configuration import Configuration
from ..diagnostics.client import DiagnosticsClient
from .application import encode_document
from .assembly import create_endpoints_of_now, list_endpoints
from .diagnostics import Diagnostics
from .event_feed import EventFeed
from .history_server import list_clusters_endpoint
from .live_replica import LiveReplica
from .program_store import ProgramStore
from .programs import Programs
from .requests import Requests


def write(path: Path) -> None:
    """Writes the document. Endpoints are only described here, so no log is opened."""
    configuration, replica = Configuration(), LiveReplica(_open_nothing)
    requests = Requests(configuration, replica)
    programs = Programs(ProgramStore(str(path.parent)), requests, replica, "")
    feed = EventFeed(_open_nothing, replica)
    diagnostics = Diagnostics.from_moments(DiagnosticsClient(), replica.read)
    of_now = create_endpoints_of_now(configuration, replica.read, requests)
    flink, own = list_endpoints(_open_nothing, requests, feed, diagnostics, of_now, programs)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_document(flink, [*own, list_clusters_endpoint(_open_nothing)]))


def _open_nothing(*_: object) -> NoReturn:
    raise AssertionError("no log is read to describe the endpoints")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
