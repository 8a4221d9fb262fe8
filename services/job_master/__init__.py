"""The JobMaster: one per job; gets slots, deploys the job's tasks into them, follows them to their end."""

from .role import JobMaster

__all__ = ["JobMaster"]
