"""The state of a subtask on its way to storage and to its changelog."""
