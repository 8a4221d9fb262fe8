"""A subtask's state on its way to storage and to its changelog."""
