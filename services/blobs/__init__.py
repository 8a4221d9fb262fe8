"""Blobs: large binary objects that are transferred outside the log.

The log names a blob by its SHA-256, so a reader can verify the content wherever it comes from. The BlobServer of each
jobmanager keeps blobs on disk and, with high availability, in shared storage. The BlobCache of a TaskExecutor fetches
them. The BlobLibraryCacheManager counts the tasks that need them.
"""
