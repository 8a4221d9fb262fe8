"""The input of a subtask: the InputGate, positions, barriers and sources."""
