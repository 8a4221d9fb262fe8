"""The ResourceManager: registers TaskExecutors, manages their slots (SlotManager), allocates slots to JobMasters."""

from .role import ResourceManager

__all__ = ["ResourceManager"]
