"""The output of a subtask: partitioned records in Kafka transactions."""
