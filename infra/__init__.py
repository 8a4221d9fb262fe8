"""External components and how they start: prerequisites, jars, Kafka, ZooKeeper; also configuration types and file
storage."""
