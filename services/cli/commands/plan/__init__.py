"""`tailrace plan`: what a program becomes, to look at, without a cluster."""

from .command import plan

__all__ = ["plan"]
