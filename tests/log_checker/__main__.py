"""`python -m tests.log_checker`: checks a log on Kafka, or a dump of one, and prints the violations."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import check, dump, load
from .log_reader import read_topic


def main() -> int:
    """Returns exit code 0 if the log has no violations, otherwise 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.log_checker", description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("dump", nargs="?", type=Path, help="a dump, as --dump writes it")
    source.add_argument("--kafka", metavar="HOST:PORT", help="a broker; needs --topic")
    parser.add_argument("--topic", help="the log's topic, such as tailrace.log")
    parser.add_argument(
        "--dump", dest="to", type=Path, metavar="FILE", help="write the events there, a line each"
    )
    parser.add_argument(
        "--unsettled",
        action="store_true",
        help="the log may break off in the middle: nothing need be answered",
    )
    arguments = parser.parse_args()
    if arguments.kafka:
        if not arguments.topic:
            parser.error("--kafka needs --topic")
        events = list(read_topic(arguments.kafka, arguments.topic))
    else:
        events = load(arguments.dump.read_text("utf-8").splitlines())
    if arguments.to:
        arguments.to.write_text("".join(f"{line}\n" for line in dump(events)), "utf-8")
    violations = check(events, settled=not arguments.unsettled)
    for violation in violations:
        print(violation)
    print(f"{len(events)} events, {len(violations)} violations", file=sys.stderr)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
