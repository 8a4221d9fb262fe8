"""What happened in a cluster, read from its log alone: the story, the jobs, and the state at any offset."""

from .entity_history import Entry, Wanted
from .projection import Fold
from .time_travel import Moment, fold_to, state_at

__all__ = ["Entry", "Fold", "Moment", "Wanted", "fold_to", "state_at"]
