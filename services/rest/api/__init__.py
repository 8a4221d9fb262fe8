"""tailrace's own REST API: events, states, stories and submissions."""
