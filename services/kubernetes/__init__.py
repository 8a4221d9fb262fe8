"""The API server of Kubernetes, by the official client: for worker drivers and leader election."""
