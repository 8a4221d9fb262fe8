"""Writes clicks of some users to a topic, some of them a few seconds late.

tailrace run examples/click_sessions/make_clicks.py --count 10000
"""

import random
from argparse import ArgumentParser

import tailrace as tr

USERS, PAGES = 20, ["home", "search", "book", "cart", "paid"]
START_MS = 1_700_000_000_000


def click(number: int) -> tuple[str, str, str, int]:
    """Returns user, page, device and time of a click, always the same for a number."""
    draw = random.Random(number)
    user = draw.randrange(USERS)
    at = START_MS + number * 1_000 - draw.choice([0, 0, 0, 3_000])
    return f"user-{user}", draw.choice(PAGES), "phone" if user % 2 else "desk", at


def main() -> None:
    parser = ArgumentParser("make_clicks", description="Writes clicks to a topic.")
    parser.add_argument("--clicks", default="clicks", help="a topic")
    parser.add_argument("--count", type=int, default=2_000)
    options = parser.parse_args()
    # One subtask: the clicks are in the order in which they come.
    env = tr.StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    numbers = env.generate(click, count=options.count, output_type=tuple[str, str, str, int])
    clicks = numbers.map(
        lambda c: dict(zip(("user", "page", "device", "at"), c, strict=True)), output_type=dict
    )
    clicks.sink_to(tr.KafkaSink(options.clicks, tr.Formats.json(), key=lambda of: of["user"]))
    env.execute("Make clicks")


if __name__ == "__main__":
    main()
