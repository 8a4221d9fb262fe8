"""The sources of settings, in ascending precedence: defaults, `<home>/tailrace.yaml`, the environment, the command
line.

The file has flat dotted keys, nested ones, or both; its values are taken as text (`off` is not a boolean). Unknown keys
are refused, with a message that fits the source.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...infra.config.options import nearest, shown
from . import options
from .configuration import Configuration, Setting
from .errors import ConfigurationError
from .options.cluster import HOME
from .options.external_resources import amount_of
from .options.kafka import key_of_variable
from .options.tenants import key_of_tenant_variable

FILE = "tailrace.yaml"
DEFINITION = "-D"
"""The origin of settings by -D."""
_PREFIX = "TAILRACE_"
OTHER_VARIABLES = frozenset(
    {"TAILRACE_CACHE_DIR", "TAILRACE_IVY_SETTINGS"}
    # A client in YARN leaves these for the ApplicationMaster.
    | {"TAILRACE_YARN_LOCAL_RESOURCES", "TAILRACE_YARN_PYTHON", "TAILRACE_YARN_STAGING"}
)
"""Variables that infra reads, also on machines without a cluster."""
_AMOUNT_VARIABLE = re.compile(r"TAILRACE_EXTERNAL_RESOURCE_([A-Z][A-Z0-9_]*)_AMOUNT")
_KUBERNETES = re.compile(r"TAILRACE_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP)(_\w+)?)?)")
"""Variables that Kubernetes sets in every pod next to a service called tailrace."""
_DEEPEST = 12


def load_configuration(
    given: Iterable[Setting] = (),
    definitions: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Configuration:
    """Returns the effective configuration. `definitions` are the KEY=VALUE texts of -D; `given` are the settings of
    other command line options, which have precedence over them; `environment` defaults to os.environ.

    Raises ConfigurationError.
    """
    faults: list[str] = []
    settings = [
        *_from_environment(os.environ if environment is None else environment, faults),
        *_from_definitions(definitions, faults),
        *given,
    ]
    home = next(
        (setting.text for setting in reversed(settings) if setting.key == HOME.key),
        HOME.default,
    )
    settings = [*_from_file(Path(home) / FILE, faults), *settings]
    try:
        configuration = Configuration.from_settings(settings)
    except ConfigurationError as error:
        raise ConfigurationError([*faults, *error.faults]) from None
    if faults:
        raise ConfigurationError(faults)
    return configuration


def _from_definitions(definitions: Sequence[str], faults: list[str]) -> Iterator[Setting]:
    for definition in definitions:
        key, equals, text = definition.partition("=")
        if equals:
            yield Setting(key.strip(), text, DEFINITION)
        else:
            faults.append(f"-D {shown(definition)} has no '=': write -D KEY=VALUE")


def _from_environment(environment: Mapping[str, str], faults: list[str]) -> Iterator[Setting]:
    keys = {options.environment_variable(key): key for key in options.BY_KEY}
    for name in sorted(environment):
        if not name.startswith(_PREFIX) or name in OTHER_VARIABLES:
            continue
        # An option may have the same name as a Kubernetes service address; the value distinguishes them.
        if _KUBERNETES.fullmatch(name) and (name not in keys or "://" in environment[name]):
            continue
        amount = _AMOUNT_VARIABLE.fullmatch(name)
        key = (
            amount_of(amount[1].lower()).key if amount is not None else keys.get(name, key_of_variable(name))
        )
        key = key or key_of_tenant_variable(name)
        if key is None:
            close = nearest(name, keys)
            faults.append(
                f"there is no option for the environment variable {shown(name)}: the nearest is {close} "
                f"({keys[close]})"
            )
        else:
            yield Setting(key, environment[name], name)


def _from_file(path: Path, faults: list[str]) -> Iterator[Setting]:
    try:
        content = path.read_text("utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        faults.append(f"{path} can't be read: {' '.join(str(error).split())}")
        return
    import yaml

    try:
        root = yaml.compose(content, yaml.SafeLoader)
    except yaml.YAMLError as error:
        faults.append(f"{path} can't be read: {' '.join(str(error).split())}")
        return
    if root is None:
        return
    seen: dict[str, str] = {}
    for keys, node in _leaves(root, ()):
        key, where = ".".join(keys), f"{path}:{node.start_mark.line + 1}"
        text = _text(node)
        if not isinstance(root, yaml.MappingNode) or text is None:
            faults.append(f"{where}: expected a key and a value, as in `heartbeat.interval: 10 s`")
        elif key in seen:
            faults.append(f"{where}: {shown(key)} is already set at {seen[key]}")
        elif key == HOME.key:
            faults.append(f"{where}: home says where this file is: give --home, or set TAILRACE_HOME")
        else:
            seen[key] = where
            yield Setting(key, text, where)


def _leaves(node: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields every node that is not a mapping, or is nested too deep, with its keys."""
    import yaml

    if not isinstance(node, yaml.MappingNode) or len(keys) > _DEEPEST:
        yield keys, node
        return
    for key, value in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else "?"
        yield from _leaves(value, (*keys, name))


def _text(node: Any) -> str | None:
    """Returns a scalar as written, and a list in Flink's syntax; None for anything else."""
    import yaml

    if isinstance(node, yaml.SequenceNode):
        texts = [_text(item) if isinstance(item, yaml.ScalarNode) else None for item in node.value]
        return None if None in texts else ";".join(text for text in texts if text is not None)
    if isinstance(node, yaml.ScalarNode) and node.tag != "tag:yaml.org,2002:null":
        return str(node.value)
    return None
