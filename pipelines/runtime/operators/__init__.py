"""The operators of the runtime, by kind: what each does with the records of a batch.

An operator takes batches and gives batches; it may keep state and act when the watermark passes. A chain
calls each with what the one before it gave. The stateless ones before the first other one of a vertex run
inside Spark's Python workers (hand_over.py), the rest in the StreamTask.
"""
