"""The runtime of a TaskExecutor: deployments, Spark queries, and the processes in which tasks run."""
