"""Upgrades a cluster to the feature level of this release (services/core/feature_level.py)."""

from __future__ import annotations

from ...schemas.client import FeatureLevelRejected
from ...schemas.event import Record
from ...schemas.everyone import FeatureLevelRaised
from ..configuration import Configuration
from ..core.feature_level import FEATURE_LEVEL
from .client import Client
from .subscription import NoAnswerError


def raise_to_latest_level(configuration: Configuration, *, timeout_s: float = 30.0) -> tuple[int, int]:
    """Requests this release's feature level and waits for it; returns (the level before, the level now).

    Raises NoAnswerError, also if the leader refuses it; LogUnavailable; UnknownFeatureLevel if the cluster's level is
    above this release's.
    """

    def answer(record: Record) -> int | None:
        body = record.body
        if isinstance(body, FeatureLevelRejected) and record.header.recipient == asker.address:
            raise NoAnswerError(body.reason)
        return body.level if isinstance(body, FeatureLevelRaised) and body.level >= FEATURE_LEVEL else None

    with Client(configuration, name="upgrade", timeout_s=10.0) as asker, asker.subscribe() as conversation:
        before = conversation.feature_level
        if before >= FEATURE_LEVEL:
            return before, before
        asker.raise_feature_level(FEATURE_LEVEL)
        now = conversation.wait_for(answer, timeout_s)
    if now is None:
        raise NoAnswerError(
            f"feature level {FEATURE_LEVEL} was requested, but no jobmanager answered: does one lead? The next leader "
            "answers the request"
        )
    return before, now
