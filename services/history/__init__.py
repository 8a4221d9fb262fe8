"""What happened in a cluster, read from its log alone: the story, the jobs, and the state at any offset."""

from .fold import Fold
from .story import Entry, Wanted
from .time_travel import Moment, fold_to, state_at

__all__ = ["Entry", "Fold", "Moment", "Wanted", "fold_to", "state_at"]
