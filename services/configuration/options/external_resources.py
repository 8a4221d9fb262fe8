"""External resources of a TaskExecutor, such as GPUs, which tailrace knows by name only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from ....infra.config.option_types import INT, OptionType
from ....infra.config.options import ConfigOption
from .kinds import WORKER

_NAMES = re.compile(r"[a-z][a-z0-9_]*(;[a-z][a-z0-9_]*)*")
_AMOUNT = re.compile(r"external-resource\.([a-z][a-z0-9_]*)\.amount")


def _read_names(text: str) -> tuple[str, ...]:
    if text in ("", "none"):
        return ()
    names = tuple(text.split(";"))
    if _NAMES.fullmatch(text) is None or len(set(names)) < len(names):
        raise ValueError(text)
    return names


_NAME_LIST: OptionType[tuple[str, ...]] = OptionType(
    "none, or names with ';' between them",
    "none, or names of lower case letters, digits and '_' with ';' between them",
    _read_names,
    lambda names: ";".join(names) or "none",
)
EXTERNAL_RESOURCES: ConfigOption[tuple[str, ...]] = ConfigOption(
    key="external-resources",
    type=_NAME_LIST,
    default=(),
    doc="Further resources of a TaskExecutor, such as `gpu;fpga`.",
    scopes=WORKER,
)
EXTERNAL_RESOURCE_AMOUNT = ConfigOption(
    key="external-resource.<name>.amount",
    type=INT,
    default=1,
    at_least=1,
    at_most=1_000_000,
    doc="How much of an external resource a TaskExecutor has, divided among its slots.",
    scopes=WORKER,
)


def amount_of(name: str) -> ConfigOption[int]:
    """Returns the option for the amount of an external resource."""
    return replace(EXTERNAL_RESOURCE_AMOUNT, key=EXTERNAL_RESOURCE_AMOUNT.key.replace("<name>", name))


def resource_of(key: str) -> str | None:
    """Returns the external resource whose amount the key sets; None for any other key."""
    found = _AMOUNT.fullmatch(key)
    return found[1] if found is not None else None


def find_contradictions(configuration: Mapping[str, str]) -> Iterator[str]:
    """Yields a line for each amount of a resource that `external-resources` does not list."""
    names = EXTERNAL_RESOURCES.of(configuration)
    for key in configuration:
        name = resource_of(key)
        if name is not None and name not in names:
            yield f"{key} is set, but {EXTERNAL_RESOURCES.key} does not name {name}"
