"""Leader election: it grants masters the right to claim leadership, and publishes the leaders for clients.

The log decides who leads (services/core/leadership.py); a grant is only the right to append a claim.
"""
