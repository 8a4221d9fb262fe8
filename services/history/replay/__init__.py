"""A history decided again: what every leader said is held against what its role owes today."""

from .decision_check import DecisionCheck, ReplayCounts
from .decision_difference import DecisionDifference, DifferenceKind

__all__ = ["ReplayCounts", "DecisionCheck", "DecisionDifference", "DifferenceKind"]
