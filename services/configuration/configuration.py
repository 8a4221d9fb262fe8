"""The effective configuration of one process: the values that were set, and the defaults of all other options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...infra.config.option_types import LOCATION
from ...infra.config.options import ConfigOption, Scope, unknown
from ...infra.redaction import HIDDEN, is_secret, redacted
from ...pipelines.graph.job_options import CHECKPOINTS_DIRECTORY, SAVEPOINTS_DIRECTORY
from . import options
from .errors import ConfigurationError
from .options.cluster import BOOTSTRAP_SERVERS, CLUSTER_ID, HOME, SCHEMA_REGISTRY_URL
from .options.external_resources import EXTERNAL_RESOURCES, amount_of
from .options.high_availability import HA_CLUSTER_ID, HA_STORAGE
from .options.task_executor import NUMBER_OF_TASK_SLOTS

T = TypeVar("T")

DEFAULT = "default"
"""The origin of what was not set."""


class Setting(msgspec.Struct, frozen=True):
    """A text that was set, and where: `-D`, `--home`, the environment variable, the line of the file."""

    key: str
    text: str
    origin: str = ""


class Configuration:
    """Immutable. What is not among the settings has its default.

    Raises ConfigurationError for unknown keys, impossible values and contradictions.
    """

    __slots__ = ("_options", "_settings")

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._take(Setting(key, text) for key, text in (values or {}).items())

    @classmethod
    def from_settings(cls, settings: Iterable[Setting]) -> Configuration:
        """Of settings in the order of their precedence, the lowest first."""
        made = cls.__new__(cls)
        made._take(settings)
        return made

    def _take(self, settings: Iterable[Setting]) -> None:
        known: dict[str, ConfigOption[Any]] = {}
        kept: dict[str, Setting] = {}
        faults: list[str] = []
        for setting in settings:
            option = options.find_option(setting.key)
            if option is None:
                faults.append(_at(setting, unknown(setting.key, options.KEYS)))
                continue
            try:
                text = option.write(option.read(setting.text))
            except ValueError as error:
                faults.append(_at(setting, str(error)))
                continue
            known[option.key] = option
            kept[option.key] = Setting(option.key, text, setting.origin)
        self._options: Mapping[str, ConfigOption[Any]] = known
        self._settings: Mapping[str, Setting] = kept
        faults += options.find_contradictions({key: setting.text for key, setting in kept.items()})
        if faults:
            raise ConfigurationError(faults)

    @property
    def cluster_id(self) -> str:
        """The prefix of the cluster's topics."""
        return self.get(CLUSTER_ID)

    @property
    def bootstrap_servers(self) -> str:
        """Kafka, host:port,...; empty: the embedded one."""
        return self.get(BOOTSTRAP_SERVERS)

    @property
    def schema_registry_url(self) -> str:
        """Empty: events are written in single-object encoding."""
        return self.get(SCHEMA_REGISTRY_URL)

    @property
    def home(self) -> Path:
        """Where local processes keep data, logs and pid files."""
        return Path(self.get(HOME))

    @property
    def ha_cluster_id(self) -> str:
        """The cluster's name in ZooKeeper and below `ha_storage`."""
        return self.get(HA_CLUSTER_ID) or self.cluster_id

    @property
    def ha_storage(self) -> str:
        """Where blobs and snapshots of all clusters are kept, as a URI; those of this one below `ha_cluster_id`."""
        return self.get(HA_STORAGE) or LOCATION.read(str(self.home.absolute() / "ha"))

    @property
    def task_slots(self) -> int:
        """Slots that a TaskExecutor offers."""
        return self.get(NUMBER_OF_TASK_SLOTS)

    def get(self, option: ConfigOption[T]) -> T:
        """The value of an option; times in microseconds, sizes in bytes."""
        setting = self._settings.get(option.key)
        return option.default if setting is None else option.read(setting.text)

    def option(self, key: str) -> ConfigOption[Any]:
        """The option of a key among the settings. Raises KeyError."""
        return self._options[key]

    def has(self, key: str) -> bool:
        """Whether an option was set; else it has its default."""
        return key in self._settings

    def effective(self) -> list[Setting]:
        """Every option with its canonical text, and where it comes from."""
        return [
            self._settings.get(option.key) or Setting(option.key, option.write(option.default), DEFAULT)
            for option in self._known()
        ]

    def settings(self) -> list[Setting]:
        """What was set, each with its canonical text."""
        return list(self._settings.values())

    def external_resources(self) -> dict[str, int]:
        """How much of each external resource a TaskExecutor has."""
        return {name: self.get(amount_of(name)) for name in self.get(EXTERNAL_RESOURCES)}

    def replace(self, values: Mapping[str, str], origin: str = "") -> Configuration:
        """The same with other values. Raises ConfigurationError."""
        others = (Setting(key, text, origin) for key, text in values.items())
        return Configuration.from_settings([*self.settings(), *others])

    def as_map(self, *scopes: Scope) -> dict[str, str]:
        """Every option that is read in these scopes -> canonical text, defaults too, so that a log which holds it
        means the same to a later version with other defaults.

        By default what ConfigurationChanged says: what masters and jobs go by. Options of CLIENT (addresses, which
        and paths) are never among them, nor is one whose key names a secret.
        """
        wanted = set(scopes or (Scope.JOBMANAGER, Scope.JOB))
        said = {
            option.key: option.write(self.get(option))
            for option in self._known()
            if wanted.intersection(option.scopes)
            and Scope.CLIENT not in option.scopes
            and not is_secret(option.key)
        }
        # Whoever reads the log may have another home.
        for directory in (CHECKPOINTS_DIRECTORY, SAVEPOINTS_DIRECTORY):
            if directory.key in said and self.get(directory) is None:
                name = "checkpoints" if directory is CHECKPOINTS_DIRECTORY else "savepoints"
                said[directory.key] = LOCATION.write(LOCATION.read(str(self.home.absolute() / name)))
        return said

    def environment(self) -> dict[str, str]:
        """The variables that give another process this configuration, whatever its file says."""
        return {
            options.environment_variable(option.key): option.write(self.get(option))
            for option in self._known()
        }

    def _known(self) -> Iterable[ConfigOption[Any]]:
        return {**options.BY_KEY, **self._options}.values()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self.environment() == other.environment()

    def __hash__(self) -> int:
        return hash(frozenset(self.environment().items()))

    def __repr__(self) -> str:
        values = {setting.key: display_value(setting) for setting in self.settings()}
        return f"Configuration({values!r})"


def display_value(setting: Setting) -> str:
    """The text of a setting as people may read it."""
    return HIDDEN if is_secret(setting.key) else redacted(setting.text)


def _at(setting: Setting, fault: str) -> str:
    return f"{setting.origin}: {fault}" if setting.origin else fault
