"""Snapshots of what the log comes to: encoded, written, read, taken, and compared between replicas."""
