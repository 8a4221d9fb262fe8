"""What a subtask reads: the InputGate, positions, barriers, sources."""
