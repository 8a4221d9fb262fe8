"""Checks programs with pyright, beside mypy: `make pyright` installs it and runs this, `make lint` does not.

In typed_programs.py pyright must find an error on each line with a planted mistake, and no other, except on lines with
a comment `# pyright: ...`. In the examples of the documentation, the projects of examples/ and the ports of PyFlink's
examples it must find none.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
API_TESTS = CHECKOUT / "tests" / "pipelines" / "api"
PLANTED = "typed_programs.py"
PAGES = ("datastream-api", "connectors", "test-your-program")
NOT_OURS = 'module "pyarrow.compute"'
"""Its functions are made when it is imported."""


def code_of(page: str) -> str:
    """Returns the examples of a page, each on its own lines."""
    kept, inside = [], False
    for line in page.splitlines():
        if line.startswith("```"):
            inside = line == "```python"
        kept.append(line if inside and not line.startswith("```") else "#")
    return "\n".join(kept) + "\n"


def errors(pyright: str) -> dict[str, list[tuple[range, str]]]:
    """Returns the errors by file: lines and text."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "tailrace").symlink_to(CHECKOUT)
        programs = root / "programs"
        shutil.copytree(API_TESTS / "pyflink_ports", programs / "pyflink_ports")
        shutil.copytree(CHECKOUT / "examples", programs / "examples", ignore=shutil.ignore_patterns("test_*"))
        shutil.copy(API_TESTS / PLANTED, programs)
        for page in PAGES:
            text = (CHECKOUT / "docs" / f"{page}.md").read_text()
            (programs / f"page_{page.replace('-', '_')}.py").write_text(code_of(text))
        options = {
            "include": ["programs"],
            "extraPaths": [directory, *map(str, (programs / "examples").iterdir())],
            "typeCheckingMode": "basic",
            "pythonVersion": "3.11",
            "enableTypeIgnoreComments": False,
        }
        (root / "pyrightconfig.json").write_text(json.dumps(options))
        command = [pyright, "--project", directory, "--pythonpath", sys.executable, "--outputjson"]
        result = subprocess.run(command, capture_output=True, text=True)
        found: dict[str, list[tuple[range, str]]] = defaultdict(list)
        for diagnostic in json.loads(result.stdout)["generalDiagnostics"]:
            if diagnostic["severity"] == "error" and NOT_OURS not in diagnostic["message"]:
                place = diagnostic["range"]
                lines = range(place["start"]["line"] + 1, place["end"]["line"] + 2)
                name = str(Path(diagnostic["file"]).relative_to(programs))
                found[name].append((lines, re.sub(r"\s+", " ", diagnostic["message"])[:300]))
        return found


def main(pyright: str) -> int:
    """Prints what differs; returns 1 if anything does."""
    found = errors(pyright)
    planted = {
        number
        for number, line in enumerate((API_TESTS / PLANTED).read_text().splitlines(), 1)
        if "# type: ignore" in line and "# pyright:" not in line
    }
    hit: set[int] = set()
    wrong = []
    for file, diagnostics in found.items():
        for lines, text in diagnostics:
            meant = planted & set(lines) if file == PLANTED else set()
            hit |= meant
            if not meant:
                wrong.append(f"{file}:{lines[0]}: {text}")
    wrong += [f"{PLANTED}:{number}: pyright finds no error here" for number in sorted(planted - hit)]
    print(*wrong, f"{len(hit)} of {len(planted)} planted mistakes found", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
