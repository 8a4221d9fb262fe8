"""Code that runs in Spark or drives it: the session, the queries, and the forwarders from partitions to StreamTasks."""
