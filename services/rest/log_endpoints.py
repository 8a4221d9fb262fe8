"""The table of tailrace's own endpoints that read the log itself."""

from __future__ import annotations

from ..history.log_source import OpenSource
from .api import events, history, log, replay, what_if
from .endpoint import Endpoint
from .errors import NotFound
from .event_feed import EventFeed


def log_endpoints(open_source: OpenSource, feed: EventFeed) -> list[Endpoint]:
    """Returns the endpoints. `open_source` opens the log; what-ifs and replay checks need one that can be pickled."""
    return [
        events.create_page_endpoint(open_source, feed.index),
        log.create_endpoint(open_source, feed.index),
        Endpoint(
            "GET",
            "/events/stream",
            query=(events.FROM, events.TYPE, events.JOB),
            stream=feed.open,
            response=events.EventEntry,
            errors=(NotFound,),
        ),
        *history.create_endpoints(open_source),
        what_if.create_endpoint(open_source),
        replay.create_endpoint(open_source),
    ]
