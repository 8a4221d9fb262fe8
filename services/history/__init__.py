"""What happened in a cluster, read from its log alone: the story, the jobs, and the state at any offset."""

from .fold import Fold
from .story import Entry, Wanted
from .time_travel import Moment, replica_at, state_at

__all__ = ["Entry", "Fold", "Moment", "Wanted", "replica_at", "state_at"]
