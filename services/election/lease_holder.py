"""One candidate for the Lease: it takes a free Lease, renews what it holds, and releases it.

The algorithm is that of Kubernetes' own components (client-go's leaderelection), with two differences. How long a hold
is trusted is measured from the moment at which the last successful renewal was *sent* (lease.py); and each take is a
term of its own with an epoch, so that a hold that has lapsed never comes back. The module `leaderelection` of the
official Python client has neither, goes by the wall clock, and cannot release.

Others' clocks are not compared: a candidate waits for a lease duration after it has *seen* the last change.

- A renewal was applied after it was sent, and is seen after it was applied. So the hold has lapsed for its holder
  before any other candidate takes the Lease.
- A write whose answer was lost may have been applied. The next read shows that: a Lease that names this process, and
  under which it does not decide, is taken at once, as a new term.
- A candidate that has released the Lease leaves it to others for a pause, or until one of them has had a term: of two
  candidates that release it one after the other, the first one may take it at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..kubernetes.api_client import Resource
from .kubernetes_settings import KubernetesElectionSettings
from .lease import Lease
from .lease_api import LeaseApi
from .lease_record import (
    duration_of,
    epoch_of,
    held_spec,
    holder_of,
    leader_lease_name,
    new_lease,
    released,
    renewed,
    taken_over,
    transitions_of,
    version_of,
)


class Term(NamedTuple):
    """A hold of the Lease, and how long it is trusted."""

    epoch: int
    trust: Lease


class LeaseHolder:
    """A candidate, used on one thread. Methods raise ApiFailure; after an error every call may be repeated."""

    def __init__(
        self, api: LeaseApi, settings: KubernetesElectionSettings, identity: str, clock: Callable[[], float]
    ) -> None:
        """`identity` is that of this process alone."""
        self._api = api
        self._settings = settings
        self._identity = identity
        self._clock = clock
        self.name = leader_lease_name(settings.cluster_id)
        self._held: Resource | None = None
        """The Lease as it was written last in the present term."""
        self._term: Term | None = None
        self._seen = ""
        """The version that was seen last."""
        self._seen_at = 0.0
        self._transitions = -1
        """Those that were seen last."""
        self._released_epoch = -1
        """The epoch of the term that it released last; -1: there was no Lease."""
        self._not_before = 0.0
        """The end of the pause after that release."""

    @property
    def free_at(self) -> float:
        """The time at which the Lease that was seen last is free, unless it is renewed."""
        return self._seen_at + self._settings.duration_s

    def hold(self, annotations: Mapping[str, str | None]) -> Term | None:
        """Renews the hold, or takes the Lease if it is free; returns the term. None: another candidate holds it."""
        if self._term is not None and not self._term.trust.is_held_until(self._clock()):
            self.end()
        if self._held is not None and self._term is not None:
            self._renew(self._held, self._term, annotations)
        else:
            self._take()
        return self._term

    def release(self, *, pause_s: float = 0.0) -> None:
        """Ends the term; another candidate may take the Lease at once, and this one after a pause, or after a term of
        another one."""
        held = self._held
        self.end()
        current = held if held is not None else self._api.read(self.name)
        if current is not None and holder_of(current) == self._identity:
            written = self._api.replace(released(current, time.time()))
            if written is None and held is not None:
                # A write whose answer was lost has changed the version.
                current = self._api.read(self.name)
                if current is not None and holder_of(current) == self._identity:
                    self._api.replace(released(current, time.time()))
        if current is not None and holder_of(current) not in ("", self._identity):
            return
        # Others can take the Lease from now on, however long the requests took.
        self._not_before = self._clock() + pause_s
        self._released_epoch = -1 if current is None else self._epoch(current)

    def end(self) -> None:
        """Ends the term without a request."""
        if self._term is not None:
            self._term.trust.expire()
        self._held = self._term = None

    def _renew(self, held: Resource, term: Term, annotations: Mapping[str, str | None]) -> None:
        for _ in range(2):
            sent = self._clock()
            written = self._api.replace(renewed(held, time.time(), annotations))
            if written is not None:
                self._held = written
                self._see(written)
                term.trust.confirm(sent, self._clock())
                return
            current = self._api.read(self.name)
            is_own = current is not None and holder_of(current) == self._identity
            if current is None or not is_own or self._epoch(current) != term.epoch:
                self.end()
                return
            # The answer to an earlier renewal was lost, or somebody has changed a label.
            held = self._held = current

    def _take(self) -> None:
        current = self._api.read(self.name)
        if current is not None:
            self._see(current)
        if not self._is_free(current):
            return
        sent, duration_s = self._clock(), self._settings.duration_s
        if current is None:
            spec = held_spec(self._identity, duration_s, self._transitions + 1, time.time())
            written = self._api.create(new_lease(self._settings.cluster_id, self.name, spec, {}))
        else:
            written = self._api.replace(taken_over(current, self._identity, duration_s, time.time()))
        if written is None:
            return
        self._see(written)
        self._held = written
        trust = Lease()
        trust.begin(sent, duration_s)
        self._term = Term(self._epoch(written), trust)

    def _is_free(self, lease: Resource | None) -> bool:
        now = self._clock()
        if lease is not None and holder_of(lease) not in ("", self._identity):
            return now >= self._seen_at + max(self._settings.duration_s, duration_of(lease))
        is_of_later_term = lease is not None and self._epoch(lease) != self._released_epoch
        return is_of_later_term or now >= self._not_before

    def _see(self, lease: Resource) -> None:
        self._transitions = transitions_of(lease)
        if version_of(lease) != self._seen:
            self._seen, self._seen_at = version_of(lease), self._clock()

    def _epoch(self, lease: Resource) -> int:
        return self._settings.base_epoch + epoch_of(lease)
