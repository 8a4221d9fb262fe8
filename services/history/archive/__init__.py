"""A log as a file. Avro is the archive: it holds every entry, guards every byte, and is read and imported like a log.
JSON lines and Parquet are exports for other programs.

Writers and readers exchange items: an event at its offset (`Record`), or bytes at an offset that are none
(`Unreadable`).
"""
