"""Sources that a StreamTask reads by itself, without Spark: docs/notes/socket-source.md has the reasons and figures."""
