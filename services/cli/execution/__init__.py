"""How `run` gets a program's job onto the cluster and follows it to its end."""
