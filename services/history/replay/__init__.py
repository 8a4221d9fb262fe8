"""A history decided again: what every leader said is held against what its role owes today (design, section 3)."""

from .decision_check import Counts, DecisionCheck
from .decision_difference import Difference, Kind

__all__ = ["Counts", "DecisionCheck", "Difference", "Kind"]
