"""The effective configuration of one process: the settings, and the defaults in `options` for all other keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...infra.config.option_types import LOCATION
from ...infra.config.options import ConfigOption, Scope
from ...infra.kafka_connection import KafkaConnection
from ...infra.redaction import HIDDEN, is_secret, redacted
from ...pipelines.graph.job_options import CHECKPOINTS_DIRECTORY, SAVEPOINTS_DIRECTORY
from . import options
from .errors import ConfigurationError
from .options.cluster import BOOTSTRAP_SERVERS, CLUSTER_ID, HOME, SCHEMA_REGISTRY_URL
from .options.external_resources import EXTERNAL_RESOURCES, amount_of
from .options.high_availability import HA_CLUSTER_ID, HA_STORAGE
from .options.kafka import KafkaUser, connection_of, find_contradictions
from .options.task_executor import NUMBER_OF_TASK_SLOTS

T = TypeVar("T")

DEFAULT = "default"
"""The origin of a default value."""


class Setting(msgspec.Struct, frozen=True):
    """The text of a setting and its origin: `-D`, `--home`, the environment variable, or the line of the file."""

    key: str
    text: str
    origin: str = ""


class Configuration:
    """Immutable. Keys without a setting have their defaults.

    Raises ConfigurationError for unknown keys, invalid values and contradictions.
    """

    __slots__ = ("_options", "_settings", "_user")

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._user = KafkaUser.COMMAND
        self._take(Setting(key, text) for key, text in (values or {}).items())

    @classmethod
    def from_settings(cls, settings: Iterable[Setting], user: KafkaUser = KafkaUser.COMMAND) -> Configuration:
        """Creates it from settings in ascending order of precedence."""
        made = cls.__new__(cls)
        made._user = user
        made._take(settings)
        return made

    def __reduce__(self) -> tuple[object, ...]:
        return Configuration.from_settings, (tuple(self._settings.values()), self._user)

    def _take(self, settings: Iterable[Setting]) -> None:
        known: dict[str, ConfigOption[Any]] = {}
        by_key: dict[str, Setting] = {}
        faults: list[str] = []
        for setting in settings:
            option = options.find_option(setting.key)
            if option is None:
                faults.append(_at(setting, options.explain_unknown(setting.key)))
                continue
            try:
                text = option.write(option.read(setting.text))
            except ValueError as error:
                faults.append(_at(setting, str(error)))
                continue
            known[option.key] = option
            by_key[option.key] = Setting(option.key, text, setting.origin)
        self._options: Mapping[str, ConfigOption[Any]] = known
        self._settings: Mapping[str, Setting] = by_key
        faults += options.find_contradictions({key: setting.text for key, setting in by_key.items()})
        if faults:
            raise ConfigurationError(faults)

    @property
    def cluster_id(self) -> str:
        """The prefix of the cluster's topics."""
        return self.get(CLUSTER_ID)

    @property
    def bootstrap_servers(self) -> str:
        """Kafka's addresses, host:port,...; empty: the embedded Kafka."""
        return self.get(BOOTSTRAP_SERVERS)

    @property
    def kafka(self) -> KafkaConnection:
        """How this process connects to Kafka. Raises ConfigurationError if its properties contradict each other."""
        texts = {key: setting.text for key, setting in self._settings.items()}
        if faults := list(find_contradictions(texts, self._user)):
            raise ConfigurationError(faults)
        return connection_of(texts, self._user)

    def as_user(self, user: KafkaUser) -> Configuration:
        """Returns a copy for another principal of the cluster at Kafka."""
        return Configuration.from_settings(self.settings(), user)

    @property
    def schema_registry_url(self) -> str:
        """The schema registry's URL; empty: events are written in single-object encoding."""
        return self.get(SCHEMA_REGISTRY_URL)

    @property
    def home(self) -> Path:
        """The directory for data, logs and pid files of local processes."""
        return Path(self.get(HOME))

    @property
    def ha_cluster_id(self) -> str:
        """The cluster's name in ZooKeeper and below `ha_storage`."""
        return self.get(HA_CLUSTER_ID) or self.cluster_id

    @property
    def ha_storage(self) -> str:
        """The URI below which all clusters store blobs and snapshots; this cluster's are below `ha_cluster_id`."""
        return self.get(HA_STORAGE) or LOCATION.read(str(self.home.absolute() / "ha"))

    @property
    def task_slots(self) -> int:
        """The number of slots of a TaskExecutor."""
        return self.get(NUMBER_OF_TASK_SLOTS)

    def get(self, option: ConfigOption[T]) -> T:
        """Returns the value of an option; times in microseconds, sizes in bytes."""
        setting = self._settings.get(option.key)
        return option.default if setting is None else option.read(setting.text)

    def option(self, key: str) -> ConfigOption[Any]:
        """Returns the option of a key in the settings. Raises KeyError."""
        return self._options[key]

    def has(self, key: str) -> bool:
        """Returns whether an option was set; otherwise it has its default."""
        return key in self._settings

    def effective(self) -> list[Setting]:
        """Returns every option with its canonical text and its origin."""
        return [
            self._settings.get(option.key) or Setting(option.key, option.write(option.default), DEFAULT)
            for option in self._known()
        ]

    def settings(self) -> list[Setting]:
        """Returns the settings with their canonical texts."""
        return list(self._settings.values())

    def external_resources(self) -> dict[str, int]:
        """Returns the amount of each external resource of a TaskExecutor."""
        return {name: self.get(amount_of(name)) for name in self.get(EXTERNAL_RESOURCES)}

    def replace(self, values: Mapping[str, str], origin: str = "") -> Configuration:
        """Returns a copy with other values. Raises ConfigurationError."""
        others = (Setting(key, text, origin) for key, text in values.items())
        return Configuration.from_settings([*self.settings(), *others], self._user)

    def as_map(self, *scopes: Scope) -> dict[str, str]:
        """Returns every option of these scopes -> canonical text. It includes defaults, so that a log with this map
        keeps its meaning under a later version with other defaults.

        By default it returns the content of ConfigurationChanged: the options of masters and jobs. Options of CLIENT
        (addresses and paths) and options whose key names a secret are never included.
        """
        wanted = set(scopes or (Scope.JOBMANAGER, Scope.JOB))
        said = {
            option.key: option.write(self.get(option))
            for option in self._known()
            if wanted.intersection(option.scopes)
            and Scope.CLIENT not in option.scopes
            and not is_secret(option.key)
        }
        # A reader of the log may have another home.
        for directory in (CHECKPOINTS_DIRECTORY, SAVEPOINTS_DIRECTORY):
            if directory.key in said and self.get(directory) is None:
                name = "checkpoints" if directory is CHECKPOINTS_DIRECTORY else "savepoints"
                said[directory.key] = LOCATION.write(LOCATION.read(str(self.home.absolute() / name)))
        return said

    def environment(self) -> dict[str, str]:
        """Returns the environment variables that give another process this configuration, whatever its file
        contains."""
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
    """Returns the text of a setting for displays."""
    return HIDDEN if is_secret(setting.key) else redacted(setting.text)


def _at(setting: Setting, fault: str) -> str:
    return f"{setting.origin}: {fault}" if setting.origin else fault
