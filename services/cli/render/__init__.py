"""Output of results: tables, JSON, states, timelines, drawings."""
