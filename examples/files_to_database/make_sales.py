"""Writes CSV files of sales into a directory. Unlike the other programs that make data, it is plain Python.

python examples/files_to_database/make_sales.py sales
"""

import csv
import random
import sys
from pathlib import Path

FIELDS = ("shop", "day", "item", "pieces", "price")


def sale(number: int) -> tuple[str, str, str, int, float]:
    """Returns the fields of a sale, always the same for a number; a return of goods has no pieces."""
    draw = random.Random(number)
    day = f"2026-11-{draw.randrange(1, 8):02}"
    return (
        f"shop-{draw.randrange(5)}",
        day,
        f"item-{draw.randrange(50)}",
        draw.randrange(6),
        draw.randrange(1, 400) / 4,
    )


def write_sales(folder: Path, files: int = 4, rows: int = 250) -> None:
    """Writes the files, which the directory must not have yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in range(files):
        with (folder / f"sales-{file}.csv").open("x", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(FIELDS)
            writer.writerows(map(sale, range(file * rows, (file + 1) * rows)))


if __name__ == "__main__":
    write_sales(Path(sys.argv[1]))
