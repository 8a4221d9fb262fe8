"""A subtask's part in checkpoints and savepoints."""
