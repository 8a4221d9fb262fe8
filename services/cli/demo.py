"""demo"""


def demo() -> int:
    """Demo."""
    return 0
