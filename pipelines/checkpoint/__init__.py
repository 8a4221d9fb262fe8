"""Checkpoints in storage: what a directory of one holds, and what of it belongs to whom in a job.

A leaf: the runtime writes and reads files of state, services write and read their metadata, and neither knows the
other.
"""
