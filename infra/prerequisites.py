"""Checks what must be on the machine before the installation: Python, Java, make.

It runs with the bare system Python, before the virtual environment exists: it imports only the standard library, and
its syntax is old enough for an old Python to parse it and report what is missing.
"""

import os
import re
import shutil
import subprocess
import sys

PYTHON_MINIMUM = (3, 11)
JAVA_MINIMUM = 17

# How to install each part, by package manager; the first one on the machine is used.
INSTALL = (
    ("apt-get", {"python": "python3 python3-venv", "venv": "python3-venv"}),
    ("dnf", {"python": "python3.11", "venv": "python3-libs", "java": "java-17-openjdk-headless"}),
    ("pacman", {"python": "python", "venv": "python", "java": "jre17-openjdk-headless"}),
    ("apk", {"python": "python3", "venv": "python3", "java": "openjdk17-jre-headless"}),
    ("brew", {"python": "python@3.11", "venv": "python@3.11", "java": "openjdk@17"}),
)
VERBS = {"apt-get": "install -y", "dnf": "install -y", "pacman": "-S", "apk": "add", "brew": "install"}


class MissingPrerequisite(Exception):
    """A required part is missing or too old; the message says how to install it."""


def install_command(part):  # type: (str) -> str
    """Returns the command that installs `part` (python, venv, java, make) on this machine."""
    for manager, packages in INSTALL:
        if shutil.which(manager):
            package = packages.get(part) or (apt_java() if part == "java" else part)
            sudo = "" if manager == "brew" or os.geteuid() == 0 else "sudo "
            return f"{sudo}{manager} {VERBS[manager]} {package}"
    return f"your system's package manager ({part})"


def apt_java():  # type: () -> str
    """Returns the Java package of this Debian or Ubuntu: 17 on some releases, 21 on others; the default is too old on
    one."""
    for version in (17, 21, 25) if shutil.which("apt-cache") else ():
        package = f"openjdk-{version}-jre-headless"
        known = subprocess.run(["apt-cache", "show", package], capture_output=True, check=False)
        if known.returncode == 0:
            return package
    return "default-jre-headless"


def find_java():  # type: () -> str
    """Returns the path of a new enough Java, from JAVA_HOME or PATH, as Spark searches for it.

    Raises MissingPrerequisite with the install command.
    """
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not java or not os.access(java, os.X_OK):
        where = f"JAVA_HOME={home} has no bin/java" if home else "no java on the PATH"
        raise MissingPrerequisite(
            f"Java {JAVA_MINIMUM} or newer is missing ({where}): install it with `{install_command('java')}`"
        )
    found = subprocess.run([java, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    text = found.stdout.decode("utf-8", "replace")
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    if match is None or int(match.group(1)) < JAVA_MINIMUM:
        version = match.group(1) if match else "a Java of unknown version"
        raise MissingPrerequisite(
            f"Java {JAVA_MINIMUM} or newer is required, but {java} is {version}:"
            f" install it with `{install_command('java')}`"
        )
    return java


def check_python():  # type: () -> None
    """Raises MissingPrerequisite if the running Python is too old or cannot create virtual environments."""
    wanted = ".".join(map(str, PYTHON_MINIMUM))
    if sys.version_info[:2] < PYTHON_MINIMUM:
        found = ".".join(map(str, sys.version_info[:3]))
        raise MissingPrerequisite(
            f"Python {wanted} or newer is required, but {sys.executable} is {found}:"
            f" install it with `{install_command('python')}`, or name one: make PYTHON=..."
        )
    try:
        import ensurepip
        import venv

        del ensurepip, venv
    except ImportError:
        raise MissingPrerequisite(
            f"{sys.executable} cannot make virtual environments:"
            f" install the missing part with `{install_command('venv')}`"
        ) from None


def check_make():  # type: () -> None
    """Raises MissingPrerequisite if make is missing."""
    if not shutil.which("make"):
        raise MissingPrerequisite(f"make is missing: install it with `{install_command('make')}`")


def main():  # type: () -> int
    """Prints one line for each missing part; returns 0 if nothing is missing."""
    missing = []
    for check in (check_python, find_java, check_make):
        try:
            check()
        except MissingPrerequisite as error:
            missing.append(str(error))
    for line in missing:
        print(f"tailrace: {line}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
