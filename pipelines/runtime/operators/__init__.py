"""The operators of the runtime, by kind.

An operator takes batches and returns batches; it may keep state and act when the watermark advances. The stateless
prefix of a vertex runs in Spark's Python workers (spark/partition_forwarder.py), the rest in the StreamTask.
"""
