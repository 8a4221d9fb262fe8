"""The list of packages, taken from the tree; everything else about the build is in pyproject.toml.

The repository root is the package `tailrace`, which setuptools' own discovery cannot express:
it would find `services`, not `tailrace.services`.
"""

from setuptools import find_packages, setup

SHIPPED = ("infra", "pipelines", "schemas", "services")

setup(
    packages=[
        "tailrace",
        *(f"tailrace.{name}" for top in SHIPPED for name in find_packages(include=[top, f"{top}.*"])),
    ]
)
