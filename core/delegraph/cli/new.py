"""`delegraph new KIND NAME`: a plug-in of one of `KINDS`, as a distribution that installs and passes its tests.

The templates lie in `templates/`, a folder for each kind: whole distributions of a plug-in called `sample_name`, which
NAME takes the place of. A leading `dot_` of a file's name is a dot.

    sample-name     the distribution             my-npu
    sample_name     the package, and entry points     my_npu
    SampleName      the backend id, and classes       MyNpu
"""

from __future__ import annotations

import argparse
import keyword
import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from delegraph.plugins import default_registry
from delegraph.plugins.hookspecs import GROUPS

__all__ = ["add_parser", "run"]

KINDS: Final = ("backend", "kernels", "partitioner", "quantizer", "pass", "planner", "tool")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `new` to the command line."""
    parser = subparsers.add_parser("new", help="begin a plug-in: a distribution with tests, which installs and passes")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("name", help="of the distribution, for example my-npu; the package is my_npu, the id MyNpu")
    parser.add_argument("--into", type=Path, default=Path(), metavar="FOLDER", help="where its folder is made (here)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the distribution; returns the exit code."""
    names = _names(args.name)
    folder = args.into / names["sample-name"]
    if folder.exists():
        raise argparse.ArgumentError(
            None, f"{folder} is there already, and nothing is overwritten: choose another name"
        )
    for path, text in _written(args.kind, names):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    print(f"{folder} is a distribution that works. Next:")
    print(f'    pip install -e "{folder}[test]"')
    print(f"    python -m pytest {folder}")
    print(f"    delegraph plugins check {names['sample_name']} --run")
    return 0


def _names(name: str) -> dict[str, str]:
    """The template's names -> those of the new package. Raises `ArgumentError` unless the name can be a package's."""
    package = re.sub(r"[-.]", "_", name).lower()
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", package) or keyword.iskeyword(package):
        raise argparse.ArgumentError(
            None, f"{name!r} cannot be a package: letters, digits and hyphens, a letter first, for example my-npu"
        )
    if package.startswith("delegraph"):
        raise argparse.ArgumentError(None, f"{name!r}: names that begin with delegraph are those of the project's own")
    taken = _taken(package)
    if taken:
        raise argparse.ArgumentError(None, f"{name!r} is {taken}, which it would hide: choose another name, my-{name}")
    words = package.split("_")
    return {"sample-name": "-".join(words), "sample_name": package, "SampleName": "".join(map(str.capitalize, words))}


def _taken(package: str) -> str | None:
    """The plug-in or importable module that has the name already, in words; None if nothing has."""
    if package in sys.stdlib_module_names:
        return "a module of Python's own"
    spec = find_spec(package)  # without an origin it is a folder that happens to be here
    if spec is not None and spec.origin is not None:
        return "a package that is installed here"
    registry = default_registry()
    return "an installed plug-in" if any(package in registry.names(group) for group in GROUPS) else None


def _written(kind: str, names: dict[str, str]) -> Iterator[tuple[str, str]]:
    """(path, text) of every file of the distribution."""
    yield "LICENSE", (files(__package__) / "templates" / "LICENSE").read_text("utf-8")
    for path, file in _files(files(__package__) / "templates" / kind):
        yield _named(path, names), _named(file.read_text("utf-8"), names)


def _files(folder: Traversable, path: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        place = path + re.sub(r"^dot_", ".", entry.name)
        if entry.is_file():
            yield place, entry
        elif entry.name != "__pycache__":
            yield from _files(entry, f"{place}/")


def _named(text: str, names: dict[str, str]) -> str:
    return re.sub("sample-name|sample_name|SampleName", lambda match: names[match.group()], text)
