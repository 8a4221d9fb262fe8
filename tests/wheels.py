"""Makes wheels of pure Python, for tests."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def make_wheel(
    folder: Path,
    name: str,
    modules: Mapping[str, str],
    *,
    version: str = "1.0",
    tag: str = "py3-none-any",
    needs: Sequence[str] = (),
) -> Path:
    """Writes a wheel with these modules, path -> source, and returns its path."""
    path = folder / f"{name}-{version}-{tag}.whl"
    info = f"{name}-{version}.dist-info"
    files = {
        **modules,
        f"{info}/METADATA": "\n".join(
            [
                "Metadata-Version: 2.1",
                f"Name: {name}",
                f"Version: {version}",
                *(f"Requires-Dist: {n}" for n in needs),
            ]
        ),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{each},,\n" for each in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as wheel:
        for each, text in files.items():
            wheel.writestr(each, text)
    return path
