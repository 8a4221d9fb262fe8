"""Reference pages in docs/ that are generated from the code."""
