"""The loop that runs roles in a process: it reads the log, folds it, decides, and appends what leaders decide."""
