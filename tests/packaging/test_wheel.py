"""The wheel contains the whole package and nothing else, and works without a checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import tailrace

pytestmark = pytest.mark.integration

PAGE = "tailrace/services/web/"
SHIPPED = ("infra/", "pipelines/", "schemas/", "services/", "testing/")
AT_THE_ROOT = {"__init__.py", "py.typed"}


@pytest.fixture(scope="module")
def wheel(root: Path, tracked: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    # From a copy: a build leaves a build/ folder behind, whose old files get into the next wheel.
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in tracked:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, source / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    built = subprocess.run(command, cwd=out, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the bin/ of a new environment with the wheel, and with the dependencies that are installed here."""
    venv = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = venv / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), *install], check=True)
    # A .pth adds the folder alone: it does not run the .pth of an editable install in there.
    where = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    here = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (Path(where.stdout.strip()) / "dependencies.pth").write_text("\n".join(sorted(here)) + "\n")
    return venv / "bin"


def run(command: list[str | Path], cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def test_wheel_has_exactly_the_files_of_the_package(wheel: Path, tracked: list[str]) -> None:
    ours = {f"tailrace/{name}" for name in tracked if name.startswith(SHIPPED) or name in AT_THE_ROOT}
    # Of the web page, what is built; its sources are for who changes it.
    ours -= {name for name in ours if name.startswith(PAGE) and not name.startswith(f"{PAGE}static/")}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == ours


def test_wheel_has_license(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_installed_command_prints_version(installed: Path, tmp_path: Path) -> None:
    result = run([installed / "tailrace", "--version"], tmp_path)
    assert result.returncode == 0, result.stderr
    assert tailrace.__version__ in result.stdout


def test_installed_package_runs_program(installed: Path, tmp_path: Path) -> None:
    program = """
import tailrace
from tailrace import StreamExecutionEnvironment, TumblingProcessingTimeWindows

env = StreamExecutionEnvironment.get_execution_environment()
lines = env.socket_text_stream("localhost", 9999)
words = lines.flat_map(lambda line: ((word, 1) for word in line.split()))
counts = words.key_by(lambda pair: pair[0]).window(TumblingProcessingTimeWindows.of(seconds=5))
counts.reduce(lambda a, b: (a[0], a[1] + b[1])).print()
print(tailrace.__file__)
"""
    result = run([installed / "python", "-c", program], tmp_path)
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).is_relative_to(installed.parent.resolve())


def test_installed_package_has_event_schemas(installed: Path, tmp_path: Path, tracked: list[str]) -> None:
    counting = "from tailrace.schemas import avro; print(len(list(avro.files())))"
    result = run([installed / "python", "-c", counting], tmp_path)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) == sum(name.endswith(".avsc") for name in tracked) > 0


def test_import_of_package_loads_no_heavy_module(installed: Path, tmp_path: Path) -> None:
    listing = "import json, sys, tailrace; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(run([installed / "python", "-c", listing], tmp_path).stdout)
    own = [name for name in loaded if name.startswith("tailrace")]
    assert own == ["tailrace", "tailrace.infra", "tailrace.infra.version"]
    assert not {"pyspark", "pyarrow", "confluent_kafka", "pandas", "rich", "typer"} & set(loaded)
