"""The clusters of a history server: their names, and the moments of their logs.

A thread looks for new logs, and for events that were added to known ones. It folds each log once up to its end, which
leaves the history index: any moment is near one of its marks then. A log that cannot be read does not hide the others.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import msgspec

from ...infra import threads
from ...infra.closing import Closeable
from ...infra.logging_setup import logger
from ...schemas.event import Record
from ..history.archive.errors import ArchiveError
from ..history.log_source import LogSource
from ..history.past_logs import LogFinder, PastLog
from ..log import LogUnavailable
from ..log.event_log import LogTruncated, read_to_end
from .errors import RestError
from .event_feed import EventFeed
from .flink.cluster import ClusterOverview, overview
from .flink.job_list import JobDetails, all_jobs_overview
from .moment import Moment
from .past_moments import MomentCache, PastMoments

_log = logger(__name__)
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")
_END_TIMEOUT_S = 5.0


class ClusterSummary(msgspec.Struct, frozen=True):
    """What lists show of a cluster, at the end of its log."""

    offset: int
    """The offset of the last event; -1: there are none."""
    time: int
    """Its time, in milliseconds since the epoch."""
    overview: ClusterOverview
    jobs: Sequence[JobDetails]

    @classmethod
    def of(cls, moment: Moment) -> ClusterSummary:
        """Returns the summary of a moment."""
        jobs = all_jobs_overview(moment, {}).jobs
        return cls(moment.offset, moment.now, overview(moment, {}), jobs)


class PastCluster:
    """A cluster by its `name` in paths. `error`: why its log cannot be read to its end."""

    def __init__(self, name: str, log: PastLog, cache: MomentCache) -> None:
        self.name = name
        self.log = log
        self.moments = PastMoments(log.open, log.histories, cache)
        self.summary: ClusterSummary | None = None
        """None until the log has been read once."""
        self.job_ids: frozenset[str] = frozenset()
        """Flink's ids of its jobs."""
        self.error: str | None = None
        self.on_events: Callable[[Sequence[Record]], object] | None = None
        self._end = -1
        self.feed = EventFeed(self.open_source, self)

    def open_source(self) -> LogSource:
        """Opens the log. Raises ArchiveError, LogUnavailable."""
        return self.log.open()

    @property
    def offset(self) -> int:
        """The offset of the last event that was read."""
        return -1 if self.summary is None else self.summary.offset

    def read(self) -> AbstractContextManager[Moment]:
        """Yields the moment of the end of the log. Raises like PastMoments.read."""
        return self.moments.read(None)

    def close(self) -> None:
        """Ends streams, and drops what is kept."""
        self.feed.close()
        self.moments.drop()

    def refresh(self) -> None:
        """Reads what is new in the log."""
        try:
            with self.open_source() as source:
                end = source.log.end()
                if end == self._end:
                    return
                if self.summary is not None and self.on_events is not None:
                    for batch in read_to_end(source.log, self.offset + 1, end=end):
                        self.on_events(batch)
            with self.moments.read(None) as moment:
                if self.summary is None or moment.offset != self.summary.offset:
                    self.summary = ClusterSummary.of(moment)
                    self.job_ids = frozenset(job.jid for job in self.summary.jobs)
            self._end = end
            self._report(self.moments.damage)
        except RestError as error:
            self._report(error.message)
        except (ArchiveError, LogTruncated, LogUnavailable) as error:
            self._report(str(error))

    def _report(self, error: str | None) -> None:
        if error is not None and error != self.error:
            _log.warning("cannot read a log to its end", cluster=self.name, reason=error)
        self.error = error


class PastClusters(Closeable):
    """Thread-safe. `interval_s`: the seconds between two searches."""

    def __init__(self, finder: LogFinder, interval_s: float) -> None:
        self._finder = finder
        self._interval_s = interval_s
        self._cache = MomentCache(hides_moments=True)
        self._clusters: dict[str, PastCluster] = {}
        """By name."""
        self._names: dict[str, str] = {}
        """Place -> name, for ever: a name in a link stays valid."""
        self._errors: dict[str, str] = {}
        self._stop = threading.Event()
        self.find()
        self._thread = threads.Thread(target=self._run, name="history server")
        self._thread.start()

    def all(self) -> list[PastCluster]:
        """Returns the clusters, by name."""
        return sorted(self._clusters.values(), key=lambda each: each.name)

    def get(self, name: str) -> PastCluster | None:
        """Returns the cluster with a name."""
        return self._clusters.get(name)

    @property
    def errors(self) -> dict[str, str]:
        """Returns place -> why there is no log."""
        return dict(self._errors)

    def find(self) -> None:
        """Looks for logs."""
        found = self._finder.find()
        for place, error in found.errors.items():
            if self._errors.get(place) != error:
                _log.warning("cannot read a log", place=place, reason=error)
        clusters: dict[str, PastCluster] = {}
        for log in found.logs:
            name = self._name(log)
            known = self._clusters.get(name)
            is_same = known is not None and known.log == log
            clusters[name] = known if known is not None and is_same else PastCluster(name, log, self._cache)
        gone = set(self._clusters.values()) - set(clusters.values())
        self._clusters, self._errors = clusters, found.errors
        for each in gone:
            each.close()

    def close(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._thread.join(_END_TIMEOUT_S)
        for cluster in self._clusters.values():
            cluster.close()

    def _name(self, log: PastLog) -> str:
        if log.place not in self._names:
            base = _NO_NAME.sub("_", log.cluster) or "_"
            taken, name, number = set(self._names.values()), base, 1
            while name in taken:
                number += 1
                name = f"{base}-{number}"
            self._names[log.place] = name
        return self._names[log.place]

    def _run(self) -> None:
        while True:
            for cluster in self.all():
                if self._stop.is_set():
                    return
                self._try(cluster.refresh)
            if self._stop.wait(self._interval_s):
                return
            self._try(self.find)

    def _try(self, act: Callable[[], object]) -> None:
        """A fault of one log must not end the server."""
        try:
            act()
        except Exception:
            _log.exception("the history server has failed to read a log; retries")
