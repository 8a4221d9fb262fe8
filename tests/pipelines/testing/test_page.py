"""docs/test-your-program.md: its examples, in order, are one module whose tests pass."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import ModuleType

import pytest

import tailrace
from tailrace.testing import MiniCluster

PAGE = Path(tailrace.__file__).resolve().parent / "docs" / "test-your-program.md"
EXAMPLE = re.compile(r"```python\n(?P<code>.*?)```(?:\n\n```text\n(?P<output>.*?)```)?", re.DOTALL)
EXAMPLES = [match["code"] for match in EXAMPLE.finditer(PAGE.read_text())]
SHOWN = "".join(match["output"] or "" for match in EXAMPLE.finditer(PAGE.read_text()))
TESTS = re.findall(r"^def (test_\w+)", "\n".join(EXAMPLES), re.MULTILINE)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Returns the module of the page; its functions can be pickled."""
    module = ModuleType("page_test_your_program")
    module.__file__ = str(tmp_path_factory.mktemp("page") / "page.py")
    sys.modules[module.__name__] = module
    with redirect_stdout(StringIO()) as output:
        for example in EXAMPLES:
            exec(compile(example, module.__file__, "exec"), module.__dict__)
    assert output.getvalue() == SHOWN
    yield module
    del sys.modules[module.__name__]


@pytest.mark.parametrize("name", TESTS)
def test_test_of_page_passes(page: ModuleType, name: str) -> None:
    test = getattr(page, name)
    if inspect.signature(test).parameters:
        with MiniCluster() as cluster:
            test(cluster)
    else:
        test()
