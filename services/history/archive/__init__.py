"""Files that a log was exported to, and back.

Three formats hold the same entries: an Avro object container (the one to keep), JSON lines (to look at and to search),
Parquet (to ask questions of with SQL). Each describes itself (manifest.py), and guards every byte: what was changed
or torn off since is found, and told with its place. Writers and readers speak in items: an event at its offset
(`Record`), or bytes at an offset that are none (`Unreadable`).
"""
