"""Makes all decisions of a log again, and compares them with its events."""

from .decision_check import DecisionCheck, ReplayCounts
from .decision_difference import DecisionDifference, DifferenceKind

__all__ = ["ReplayCounts", "DecisionCheck", "DecisionDifference", "DifferenceKind"]
