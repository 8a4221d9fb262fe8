"""Reads the history of a cluster from its log alone: events, jobs, checkpoints, and the state at any offset."""

from .event_formatting import EventFilter, FormattedEvent
from .projection import HistoryProjection
from .time_travel import ClusterMoment, fold_to, state_at

__all__ = ["FormattedEvent", "HistoryProjection", "ClusterMoment", "EventFilter", "fold_to", "state_at"]
