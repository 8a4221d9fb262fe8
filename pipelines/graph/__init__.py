"""StreamGraph -> JobGraph -> ExecutionGraph -> physical plan: the four levels of document 002.

Knows neither services nor Spark, and never unpickles: a JobGraph's functions are bytes here.
"""
