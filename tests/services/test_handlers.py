"""The name of an event leads to its handler by grep."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import tailrace.services

SERVICES = Path(tailrace.services.__file__).parent
RECEIVERS = ("dispatcher", "resource_manager", "job_master", "task_executor", "client", "everyone")
ROLES = ("dispatcher", "resource_manager", "job_master", "task_executor")


def tables() -> Iterator[tuple[str, str, str, str]]:
    """Yields for each entry of a step table: its location, the event's receiver and name, and its handler."""
    for role in ROLES:
        for path in sorted((SERVICES / role).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Dict):
                    continue
                for key, value in zip(node.keys, node.values, strict=True):
                    if (
                        isinstance(key, ast.Attribute)
                        and isinstance(key.value, ast.Name)
                        and key.value.id in RECEIVERS
                    ):
                        where = f"{path.relative_to(SERVICES)}:{key.lineno}"
                        yield where, key.value.id, key.attr, ast.unparse(value)


def test_handler_is_named_after_its_event() -> None:
    results = [
        (where, event, handler)
        for where, receiver, event, handler in tables()
        if handler.rpartition(".")[2] not in names(receiver, event)
    ]
    assert results == []


def test_all_step_tables_are_checked() -> None:
    assert len(list(tables())) > 120


def names(receiver: str, event: str) -> tuple[str, ...]:
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", event).lower()
    # Where a role handles two events of one name, the receiver tells them apart; `unchanged` is for no effect at all.
    return f"on_{plain}", f"on_{receiver}_{plain}", "unchanged"
