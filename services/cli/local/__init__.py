"""A cluster whose processes all run on this machine: start, status and stop."""
