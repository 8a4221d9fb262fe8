"""Large binary objects of a cluster (Flink's BlobServer): what is too large for the log.

The log names a blob by its SHA-256, so that whoever fetches it can check the content, whatever its source. The
BlobServer of each jobmanager stores blobs on disk and, with high availability, in shared storage. The BlobCache of a
TaskExecutor fetches them. The BlobLibraryCacheManager counts the tasks that need them.
"""
