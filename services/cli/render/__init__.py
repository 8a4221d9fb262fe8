"""How results are printed: tables, JSON, states, timelines, drawings."""
