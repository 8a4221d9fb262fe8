"""Decides the parallelism of a job that runs from the lag and the busy time of its tasks (Flink's autoscaler)."""
