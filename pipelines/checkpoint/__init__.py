"""Checkpoints in storage: directories, metadata, files of state, and their redistribution to subtasks.

The runtime writes and reads files of state, services write and read metadata. Neither knows the other.
"""
