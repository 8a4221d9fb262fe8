"""Writes changes of a table of customers to a topic, in Debezium's envelope: a stand-in for a database with Debezium.

tailrace run examples/cdc_to_parquet/make_changes.py --count 10000
"""

import json
import random
from argparse import ArgumentParser

import tailrace as tr

ROWS, CITIES = 100, ["Athens", "Lima", "Oslo", "Pune"]
START_MS = 1_700_000_000_000
STEP_MS = 400_000


def envelope(number: int) -> dict[str, object]:
    """Returns Debezium's envelope of a change, always the same for a number."""
    draw = random.Random(number)
    row = {"id": number % ROWS, "name": f"customer {number % ROWS}", "city": draw.choice(CITIES)}
    # Each row is inserted first, and deleted and inserted again now and then.
    turn = number // ROWS % 5
    operation = "c" if turn == 0 else "d" if turn == 4 else "u"
    before = None if operation == "c" else row
    after = None if operation == "d" else row
    return {"op": operation, "before": before, "after": after, "ts_ms": START_MS + number * STEP_MS}


def key_of(change: str) -> str:
    """Returns the key of the row that a change is about."""
    envelope = json.loads(change)
    return str((envelope["after"] or envelope["before"])["id"])


def main() -> None:
    parser = ArgumentParser("make_changes", description="Writes changes of a table to a topic.")
    parser.add_argument("--changes", default="shop.public.customers", help="a topic")
    parser.add_argument("--count", type=int, default=1_000)
    options = parser.parse_args()
    # One subtask: the changes of a row are in order.
    env = tr.StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    changes = env.generate(lambda n: json.dumps(envelope(n)), count=options.count, output_type=str)
    changes.sink_to(tr.KafkaSink(options.changes, tr.Formats.text(), key=key_of))
    env.execute("Make changes")


if __name__ == "__main__":
    main()
