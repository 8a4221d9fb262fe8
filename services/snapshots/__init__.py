"""Snapshots of the states that the log folds to: encoding, files, creation, recovery, and comparison between
replicas."""
