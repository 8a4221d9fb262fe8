"""The processes of a cluster: which roles, shells and connections each puts together."""
