"""Option groups: a command takes options that belong together, such as those that name a cluster, as one parameter.

A group is a dataclass whose fields are annotated as options. Typer gets the fields in place of the parameter.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

import typer


def expand_groups(command: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the command with the fields of its groups as parameters of their own."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint) and isinstance(hint, type)}

    @functools.wraps(command)
    def run(**given: Any) -> Any:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return command(**given)

    def parameters() -> Iterator[inspect.Parameter]:
        for parameter in inspect.signature(command).parameters.values():
            if parameter.name not in groups:
                yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[parameter.name])
                continue
            group_hints = get_type_hints(groups[parameter.name], include_extras=True)
            for field in fields(groups[parameter.name]):
                yield inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=field.default,
                    annotation=group_hints[field.name],
                )

    expanded = list(parameters())
    del run.__wrapped__
    run.__dict__["__signature__"] = inspect.Signature(expanded)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in expanded}
    return run


class CommandGroup(typer.Typer):
    """Commands whose parameters may be option groups."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Registers a command; returns it as it is."""
        register = super().command(name, **settings)

        def add(command: Any) -> Any:
            register(expand_groups(command))
            return command

        return add
