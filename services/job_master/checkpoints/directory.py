"""Where the checkpoints of a job are stored."""

from __future__ import annotations

from ....pipelines.checkpoint import layout
from ..state import StartedJob


def job_directory(state: StartedJob) -> str:
    """Returns the directory of all checkpoints of the job; empty if the cluster has not configured any."""
    root = state.options.checkpointing.checkpoints_directory
    return layout.job_directory(root, state.job_id) if root else ""
