"""Expressions in a part of Spark SQL: read, checked against a record type, evaluated on Arrow columns, or given to
Spark.

An expression is total: what raises an error in Spark's ANSI mode (an overflow, a division by zero) is NULL here, as
with Spark's try_add and its like. So it does not matter which rows an expression is evaluated on, or where.
"""
