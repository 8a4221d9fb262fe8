"""Snapshots of the states folded from the log: encoding, files, creation, recovery, and comparison between replicas."""
