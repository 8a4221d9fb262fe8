"""The upgrade of a program in place: a savepoint, the new program from it, and the old one again if that does not
run."""
