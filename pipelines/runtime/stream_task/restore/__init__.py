"""The start of an attempt: it restores from a checkpoint, its changelog and committed progress."""
