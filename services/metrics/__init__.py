"""Metrics of the processes of a cluster, for Prometheus.

table.py lists all metrics. Pure functions compute samples from the state of a replica and from the figures of a
TaskExecutor's runtime, each time that somebody asks. exposition.py writes them as text for Prometheus.
"""
