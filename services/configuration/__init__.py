"""What a cluster and its processes are told: options (one table), where their values come from, and what roles read."""

from .configuration import Configuration

__all__ = ["Configuration"]
