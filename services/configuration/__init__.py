"""The configuration of a cluster and its processes: one table of options, the sources of their values, and the subset
that roles read."""

from .configuration import Configuration, Setting
from .errors import ConfigurationError
from .sources import load_configuration

__all__ = ["Configuration", "ConfigurationError", "Setting", "load_configuration"]
