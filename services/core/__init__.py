"""What all roles share: their contract, the states replayed from the log, leadership, and immutable indexes."""
