"""A whole job in one process: Kafka is lists, Spark is a loop, time is a number."""
