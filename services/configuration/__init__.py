"""What a cluster and its processes are told: options (one table), where their values come from, and what roles read."""

from .configuration import Configuration, Setting
from .errors import ConfigurationError
from .sources import load_configuration

__all__ = ["Configuration", "ConfigurationError", "Setting", "load_configuration"]
