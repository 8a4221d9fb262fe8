"""Workers as pods of Kubernetes (`resourcemanager.worker-driver: kubernetes`)."""
