"""Random programs with another row class: imports their modules with that class."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import sys
from types import ModuleType
from typing import Any

import pytest
from pipelines.model import programs, rows
from pipelines.model.rows import Version

_numbers = itertools.count(1)


@functools.cache
def programs_of(version: Version) -> Any:
    """Returns the module `programs` with the version's row class."""
    if version == Version():
        return programs
    package, number = sys.modules["pipelines.model"], next(_numbers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "Row", version.row_class())
        patch.setattr(rows, "Number", version.number_type)
        for name in ("functions", "steps", "programs"):
            module = _loaded_again(f"{package.__name__}.{name}", number)
            patch.setitem(sys.modules, f"{package.__name__}.{name}", module)
            patch.setattr(package, name, module)
    return module


def _loaded_again(name: str, number: int) -> ModuleType:
    file = sys.modules[name].__file__
    assert file is not None
    spec = importlib.util.spec_from_file_location(f"{name}_{number}", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
