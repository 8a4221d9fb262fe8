"""Generates the Python classes of `schemas/` from the `.avsc` files, which are the source of truth.

`python -m tailrace.schemas.generate` rewrites `<folder>/__init__.py`, `catalog.py` and `fingerprints.py`; `--check`
writes nothing and exits with 1 if a file differs from the generated content. Needs ruff, which formats the code.

`--release VERSION` writes `released/VERSION.json`, the schemas of the release that is about to be made, by which later
releases read its events. Files of earlier releases are never written again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import avro, released

PRIMITIVES = {
    "string": "str",
    "long": "int",
    "int": "int",
    "double": "float",
    "boolean": "bool",
    "bytes": "bytes",
}


def sources() -> dict[Path, str]:
    """Returns path -> the generated content."""
    folders: dict[str, list[dict[str, Any]]] = {}
    for path in avro.files():
        folders.setdefault(path.parent.name, []).append(json.loads(path.read_text("utf-8")))
    texts = {
        avro.FOLDER / folder / "__init__.py": _module(folder, schemas) for folder, schemas in folders.items()
    }
    texts[avro.FOLDER / "catalog.py"] = _catalog(folders)
    texts[avro.FOLDER / "fingerprints.py"] = _fingerprints()
    return {path: _laid_out(text) for path, text in texts.items()}


def main(arguments: list[str]) -> int:
    """Writes the files or, with `--check`, compares them; returns the exit code."""
    if "--release" in arguments:
        return _release(arguments[arguments.index("--release") + 1 :])
    wanted = sources()
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]
    if "--check" in arguments:
        for path in stale:
            print(
                f"{path.relative_to(avro.FOLDER.parent)} does not match its .avsc files: run `make schemas`"
            )
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path], "utf-8")
        print(f"wrote {path.relative_to(avro.FOLDER.parent)}")
    return 0


def _release(versions: list[str], folder: Path = released.FOLDER) -> int:
    from ..infra.version import __version__

    if versions != [__version__]:
        print(
            f"--release {' '.join(versions)}: these schemas are of {__version__} (infra/version.py), and those "
            "of a release are written once: give that version, or set it first",
            file=sys.stderr,
        )
        return 2
    path = folder / f"{__version__}.json"
    path.write_text(released.text(__version__, avro.schemas()), "utf-8")
    print(f"wrote {path.relative_to(avro.FOLDER.parent)}")
    return 0


def _python_type(schema: Any) -> str:
    match schema:
        case ["null", inner]:
            return f"{_python_type(inner)} | None"
        case {"type": "array", "items": items}:
            return f"tuple[{_python_type(items)}, ...]"
        case {"type": "map", "values": values}:
            return f"Mapping[str, {_python_type(values)}]"
        case {"type": inner}:
            return _python_type(inner)
        case str() as name if name in PRIMITIVES:
            return PRIMITIVES[name]
        case str() as name if name.startswith("tailrace."):
            return name.rpartition(".")[2]
        case _:
            raise ValueError(f"{schema!r} has no Python type: add it to schemas/generate.py")


def _default(field: dict[str, Any]) -> str:
    match field:
        case {"default": None}:
            return " = None"
        case {"default": {}}:
            return " = msgspec.field(default_factory=dict)"
        case {"default": []}:
            return " = ()"
        case {"default": value}:
            return f" = {value!r}"
        case _:
            return ""


def _class(schema: dict[str, Any]) -> str:
    doc = schema["doc"]
    if schema["type"] == "enum":
        symbols = "\n".join(f'    {symbol} = "{symbol}"' for symbol in schema["symbols"])
        return f'class {schema["name"]}(StrEnum):\n    """{doc}"""\n\n{symbols}\n'
    is_event = schema["fields"][0]["name"] == "header"
    fields = schema["fields"][1:] if is_event else schema["fields"]
    base = (
        "Body, frozen=True, gc=False, kw_only=True"
        if is_event
        else "msgspec.Struct, frozen=True, gc=False, kw_only=True"
    )
    name_line = f'    AVRO_NAME: ClassVar[str] = "{schema["namespace"]}.{schema["name"]}"\n'
    lines = "".join(
        f'    {f["name"]}: {_python_type(f["type"])}{_default(f)}\n    """{f["doc"]}"""\n' for f in fields
    )
    return f'class {schema["name"]}({base}):\n    """{doc}"""\n\n{name_line}{lines}'


def _module(folder: str, schemas: list[dict[str, Any]]) -> str:
    used = {
        t.rpartition(".")[2] for schema in schemas for t in avro._references(schema.get("fields", []))
    } - {"Header"}
    body = "\n\n".join(_class(schema) for schema in schemas)
    head = "Shared types" if folder == "types" else f"Events of the namespace tailrace.{folder}"
    text = f'"""{head}: generated from the .avsc files beside this one by `make schemas`."""\n\n'
    text += "from __future__ import annotations\n\n"
    if "Mapping[" in body:
        text += "from collections.abc import Mapping\n"
    if "StrEnum" in body:
        text += "from enum import StrEnum\n"
    text += (
        "from typing import ClassVar\n\nimport msgspec\n\n"
        if "msgspec." in body
        else "from typing import ClassVar\n\n"
    )
    if "(Body" in body:
        text += "from ..body import Body\n"
    if folder != "types" and used:
        text += f"from ..types import {', '.join(sorted(used))}\n"
    names = ", ".join(f'"{schema["name"]}"' for schema in sorted(schemas, key=lambda s: str(s["name"])))
    return f"{text}\n__all__ = [{names}]\n\n{body}"


def _catalog(folders: dict[str, list[dict[str, Any]]]) -> str:
    events = {
        folder: [s["name"] for s in schemas if s["type"] == "record" and s["fields"][0]["name"] == "header"]
        for folder, schemas in sorted(folders.items())
    }
    events = {folder: names for folder, names in events.items() if names}
    rows = "\n".join(
        f"    {folder}.{name}.AVRO_NAME: {folder}.{name},"
        for folder, names in events.items()
        for name in names
    )
    senders = "\n".join(
        f"    {folder}.{schema['name']}: frozenset({schema['senders']!r}),"
        for folder, schemas in sorted(folders.items())
        for schema in schemas
        if schema["name"] in events.get(folder, ())
    )
    return (
        '"""Every event by the full name of its Avro record, and the kinds of its senders: generated by '
        '`make schemas`."""\n\n'
        "from __future__ import annotations\n\n"
        "from collections.abc import Mapping\nfrom types import MappingProxyType\n\n"
        f"from . import {', '.join(events)}\nfrom .body import Body\n\n"
        f"EVENTS: Mapping[str, type[Body]] = MappingProxyType({{\n{rows}\n}})\n"
        f"SENDERS: Mapping[type[Body], frozenset[str]] = MappingProxyType({{\n{senders}\n}})\n"
    )


def _fingerprints() -> str:
    names = filter(avro.stands_alone, avro.schemas())
    rows = "\n".join(f"    {name!r}: {avro.fingerprint_of(avro.standalone(name)).hex()!r}," for name in names)
    return (
        '"""The fingerprints (`avro.fingerprint`), in hex, of the messages of topics: generated by '
        '`make schemas`."""\n\n'
        "from __future__ import annotations\n\n"
        "from collections.abc import Mapping\nfrom types import MappingProxyType\n\n"
        f"FINGERPRINTS: Mapping[str, str] = MappingProxyType({{\n{rows}\n}})\n"
    )


def _laid_out(text: str) -> str:
    for step in (["check", "--select", "I,F401", "--fix", "--quiet"], ["format"]):
        command = [
            sys.executable,
            "-m",
            "ruff",
            *step,
            "--stdin-filename",
            str(avro.FOLDER / "generated.py"),
            "-",
        ]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
