"""The real parts tailrace stands on, and how they start: prerequisites, jars, Kafka, ZooKeeper."""
