"""The Dispatcher: admits what clients ask for, starts a JobMaster for each job, and tells clients how jobs end."""

from .role import Dispatcher

__all__ = ["Dispatcher"]
