"""Creates a topic, or prints the committed messages of one as JSON: `python -m ... create|read KAFKA NAME`."""

from __future__ import annotations

import json
import sys

from fault_injection.result_topics import make_exactly, read

if __name__ == "__main__":
    verb, bootstrap_servers, name = sys.argv[1:]
    if verb == "create":
        make_exactly(bootstrap_servers, {name: 2})
    else:
        print(json.dumps(read(bootstrap_servers, name)))
