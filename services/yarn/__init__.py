"""Hadoop YARN: its own client classes, in a JVM beside the process.

Python code sees narrow protocols with frozen data. Only the files whose names begin with `jvm_` know py4j.
"""
