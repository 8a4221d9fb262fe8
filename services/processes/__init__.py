"""The processes of a cluster; each module assembles its roles, shells and connections."""
