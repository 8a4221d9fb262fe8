"""The list of packages, taken from the tree; everything else about the build is in pyproject.toml.

The repository root is the package `tailrace`, which setuptools' own discovery cannot express:
it would find `services`, not `tailrace.services`.
"""

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

SHIPPED = ("infra", "pipelines", "schemas", "services", "testing")


class BuildPackage(build_py):
    """Leaves this file, which lies in the package's folder, out of the package."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        modules = super().find_package_modules(package, package_dir)
        return [module for module in modules if module[:2] != ("tailrace", "setup")]


setup(
    cmdclass={"build_py": BuildPackage},
    packages=[
        "tailrace",
        *(f"tailrace.{name}" for top in SHIPPED for name in find_packages(include=[top, f"{top}.*"])),
    ],
)
