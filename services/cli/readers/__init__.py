"""Readers of a cluster's log, Kafka, ZooKeeper and storage for commands."""
