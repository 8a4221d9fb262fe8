"""Flink's REST API by shape: paths, names, units, status codes and error bodies of Flink 2.3."""
