"""What a subtask writes: partitioned records, in Kafka transactions."""
