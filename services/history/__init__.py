"""What happened in a cluster, read from its log alone: the story, the jobs, and the state at any offset."""

from .entity_history import EventFilter, FormattedEvent
from .projection import HistoryProjection
from .time_travel import ClusterMoment, fold_to, state_at

__all__ = ["FormattedEvent", "HistoryProjection", "ClusterMoment", "EventFilter", "fold_to", "state_at"]
