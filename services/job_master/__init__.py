"""The JobMaster: one per job; acquires slots, deploys the job's tasks into them, and follows them to their end."""

from .role import JobMaster

__all__ = ["JobMaster"]
