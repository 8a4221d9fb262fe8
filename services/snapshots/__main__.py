"""`python -m tailrace.services.snapshots END`: see child.py."""

import sys

from ..diagnostics import log_to_stderr
from .child import main

log_to_stderr()
sys.exit(main(sys.argv[1:]))
