"""What runs in Spark: the session, the queries, and the forwarders from partitions to StreamTasks."""
