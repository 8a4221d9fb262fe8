"""tailrace: a cluster control plane for stream processing whose conversation is its database.

Importing the package costs nothing: what it offers is loaded at first use.
"""

__version__ = "0.1.0"
