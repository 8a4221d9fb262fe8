"""The shared part of all roles: their contract, the states replayed from the log, leadership, and immutable indexes."""
