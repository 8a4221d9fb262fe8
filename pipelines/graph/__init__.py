"""StreamGraph -> JobGraph -> ExecutionGraph -> physical plan: Flink's four levels.

Knows neither services nor Spark, and never unpickles: a JobGraph's functions are bytes here.
"""
