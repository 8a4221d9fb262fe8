"""The Avro contract: one `.avsc` file per event, in the folder of the role that receives it.

`<folder>/__init__.py` holds the events as frozen Python classes, generated from the files (`make schemas`).
"""
