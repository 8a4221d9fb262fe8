"""The ResourceManager: knows TaskExecutors and their slots (SlotManager), finds slots for JobMasters."""

from .role import ResourceManager

__all__ = ["ResourceManager"]
