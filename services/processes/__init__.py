"""The processes of a cluster: each module connects the roles, shells and connections of one kind of process."""
