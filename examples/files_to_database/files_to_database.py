"""Loads CSV files of sales into a table of a SQL database: the total of each shop and day, each row exactly once.

tailrace run examples/files_to_database/files_to_database.py --sales sales --database sqlite:////tmp/shop.db
"""

from argparse import ArgumentParser
from dataclasses import dataclass
from datetime import timedelta

import tailrace as tr


@dataclass(frozen=True)
class Sale:
    shop: str
    day: str
    item: str
    pieces: int
    price: float


@dataclass(frozen=True)
class Total:
    shop: str
    day: str
    sales: int
    revenue: float


def to_total(sale: Sale) -> Total:
    """Returns the total of one sale."""
    return Total(sale.shop, sale.day, 1, sale.pieces * sale.price)


def add(a: Total, b: Total) -> Total:
    """Returns the total of both."""
    return Total(a.shop, a.day, a.sales + b.sales, a.revenue + b.revenue)


def main() -> None:
    parser = ArgumentParser("files_to_database", description="Loads sales into a SQL database.")
    parser.add_argument("--sales", required=True, help="a directory of CSV files with a header")
    parser.add_argument(
        "--database", required=True, help="SQLAlchemy's URL of a database with the table `totals`"
    )
    parser.add_argument("--password-file", help="where the tasks run; its first line is the password")
    options = parser.parse_args()
    env = tr.StreamExecutionEnvironment.get_execution_environment()
    sales = env.read_csv(f"{options.sales}/*.csv", output_type=Sale)
    totals = (
        sales.where("pieces > 0")
        .map(to_total)
        .key_by(lambda total: (total.shop, total.day), tuple[str, str])
        .reduce(add)
        .uid("totals")
    )
    # A later total of a shop and day replaces the earlier one.
    totals.sink_to(
        tr.DatabaseSink(
            options.database,
            "totals",
            key=["shop", "day"],
            roll_interval=timedelta(seconds=2),
            password_file=options.password_file,
        )
    )
    env.execute("Sales to a database")


if __name__ == "__main__":
    main()
