"""Another parallelism for a job that runs (Flink's rescaling by AdaptiveScheduler)."""
