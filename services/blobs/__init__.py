"""Large binary objects of a cluster: what is too large for the log travels beside it (document 001).

The log names a blob by its SHA-256, so that whoever fetches it knows that it is what was meant, wherever it came from.
The BlobServer of each jobmanager keeps blobs on disk and, with high availability, in storage that all can reach; the
BlobCache of a TaskExecutor fetches them; the BlobLibraryCacheManager counts who needs them.
"""
