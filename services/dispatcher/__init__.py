"""The Dispatcher: admits requests of clients, starts a JobMaster for each job, and reports to clients how jobs end."""

from .role import Dispatcher

__all__ = ["Dispatcher"]
