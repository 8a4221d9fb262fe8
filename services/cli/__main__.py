"""`python -m tailrace.services.cli` is the command `tailrace`."""

import sys

from . import main

sys.exit(main())
