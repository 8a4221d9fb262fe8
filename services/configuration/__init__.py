"""What a cluster and its processes are told: options (one table), where their values come from, and what roles read."""

from .configuration import Configuration, Setting
from .errors import ConfigurationError
from .sources import load

__all__ = ["Configuration", "ConfigurationError", "Setting", "load"]
