"""Every option is read somewhere.

The test looks in the code for what the tables declare: for the constant of an option outside its declaration, and for a
field of role options as an attribute of `options`, or in the pattern of a match.
"""

from __future__ import annotations

import ast
import functools
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import msgspec
import pytest

import tailrace.pipelines
import tailrace.services
from tailrace.infra.config.options import ConfigOption
from tailrace.pipelines.graph import adaptive_scheduler_options, autoscaler_options, job_options
from tailrace.services.configuration import Configuration, options, role_options
from tailrace.services.configuration.options.resource_manager import WorkerDriver
from tailrace.services.resource_manager.drivers.factory import DRIVERS, create_drivers

SUBJECTS = [import_module(f"{options.__name__}.{module.name}") for module in iter_modules(options.__path__)]
OF_JOBS = (job_options, adaptive_scheduler_options, autoscaler_options)
DECLARED_IN = {Path(str(module.__file__)) for module in (options, *SUBJECTS, *OF_JOBS)}
BY_CONSTANT: dict[str, ConfigOption[Any]] = {
    name: value
    for module in (*SUBJECTS, *OF_JOBS)
    for name, value in vars(module).items()
    if isinstance(value, ConfigOption)
}
STRUCTS = [
    variable
    for variable in vars(role_options).values()
    if isinstance(variable, type)
    and issubclass(variable, msgspec.Struct)
    and variable.__module__ == role_options.__name__
]


@functools.cache
def modules() -> dict[Path, ast.AST]:
    """Yields all modules that may read an option."""
    return {
        path: ast.parse(path.read_text())
        for package in (tailrace.services, tailrace.pipelines)
        for path in Path(package.__path__[0]).rglob("*.py")
    }


def loaded(tree: ast.AST) -> set[str]:
    """Returns the names that are read, plain or as attributes of a module."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def fields_read(tree: ast.AST) -> set[str]:
    """Returns x in options.x and in <anything>.options.x, or after checkpointing, autoscaler or
    adaptive_scheduler; (class, x) as "class.x"
    in a pattern, or of an annotated argument."""
    results: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute | ast.Name):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else node.value.id
            if owner in ("options", "checkpointing", "autoscaler", "adaptive_scheduler"):
                results.add(node.attr)
        if isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Name):
            results |= {f"{node.cls.id}.{name}" for name in node.kwd_attrs}
        if isinstance(node, ast.FunctionDef):
            kinds = {
                argument.arg: ast.unparse(argument.annotation)
                for argument in node.args.args
                if argument.annotation
            }
            for part in ast.walk(node):
                if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
                    results.add(f"{kinds.get(part.value.id)}.{part.attr}")
    return results


@functools.cache
def read() -> dict[Path, set[str]]:
    """Returns by path the names that are read there."""
    return {path: loaded(tree) for path, tree in modules().items() if path not in DECLARED_IN}


@functools.cache
def fields() -> set[str]:
    """Returns `fields_read` of all modules."""
    declared_in = Path(str(role_options.__file__))
    return set().union(*(fields_read(tree) for path, tree in modules().items() if path != declared_in))


def test_options_of_tables_and_constants_agree() -> None:
    declared = {option.key for option in BY_CONSTANT.values()}
    assert declared == {*options.KEYS, *job_options.BY_KEY}


@pytest.mark.parametrize("constant", sorted(BY_CONSTANT))
def test_every_option_is_read(constant: str) -> None:
    # The key of a template stands for many keys.
    used_by_its_own_module = "<" in BY_CONSTANT[constant].key
    readers = [path for path, names in read().items() if constant in names]
    assert readers or used_by_its_own_module, f"nothing reads {BY_CONSTANT[constant].key}"


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_role_option_is_read_by_role(struct: type[msgspec.Struct]) -> None:
    unread = [
        name
        for name in struct.__struct_fields__
        if name not in fields() and f"{struct.__name__}.{name}" not in fields()
    ]
    assert unread == []


def test_every_named_worker_driver_can_be_created(tmp_path: Path) -> None:
    assert set(DRIVERS) == set(WorkerDriver)
    for name in WorkerDriver:
        values = {"home": str(tmp_path), "resourcemanager.worker-driver": name.value}
        wanted = Configuration({**values, "kubernetes.container.image.ref": "tailrace"})
        drivers = create_drivers(wanted, "", lambda error: None)
        driver = drivers.create(lambda resource_id, reason: None, lambda body, cause: None)
        driver.close()
        drivers.close()
