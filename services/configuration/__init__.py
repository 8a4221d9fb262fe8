"""Configuration of a cluster and its processes: the table of options, the sources of values, and what roles read."""

from .configuration import Configuration, Setting
from .errors import ConfigurationError
from .sources import load_configuration

__all__ = ["Configuration", "ConfigurationError", "Setting", "load_configuration"]
