"""Stream programs: the API (`api`), translation into graphs (`graph`), and execution (`runtime`)."""
