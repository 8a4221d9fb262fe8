"""Writes the API reference of the public package: `python docs/api_docs.py FOLDER`, or `make api-docs`.

The page has what `from tailrace import ...` offers, from the docstrings.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pdoc
import pdoc.render

import tailrace


def write(folder: Path) -> None:
    """Writes the pages into the folder, which is created."""
    # The package loads its names on first use; pdoc sees only those that are loaded.
    vars(tailrace).update({name: getattr(tailrace, name) for name in tailrace.__all__})
    pdoc.render.configure(
        docformat="markdown", footer_text=f"tailrace {tailrace.__version__}", show_source=False
    )
    pdoc.pdoc("tailrace", output_directory=folder)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
