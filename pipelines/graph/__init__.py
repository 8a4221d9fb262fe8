"""StreamGraph -> JobGraph -> ExecutionGraph -> physical plan: Flink's four levels.

This package knows neither services nor Spark, and never unpickles: functions in a JobGraph are bytes.
"""
