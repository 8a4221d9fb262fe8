"""The REST server: Flink's REST API and tailrace's own, answered from a replica of the log.

Views are pure functions from a `Moment` to values of the shape that clients read (flink/, api/). The HTTP shell
(application.py, server.py) parses requests, calls them, and encodes what they return. A write is a record on the
submissions topic; its outcome is read from the log, so any server may answer it.
"""
