"""tailrace's own REST API, below /api/v1."""
