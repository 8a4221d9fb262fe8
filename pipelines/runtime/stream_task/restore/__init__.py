"""Where a subtask begins: from a checkpoint, its changelog, and committed progress."""
