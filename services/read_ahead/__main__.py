"""`python -m tailrace.services.read_ahead START END`: see child.py."""

import sys

from ..entrypoints.process import log_to_stderr
from .child import main

log_to_stderr()
sys.exit(main(sys.argv[1:]))
