"""What the runtime's processes share: the deployment, the protocol between them, settings, failures."""
