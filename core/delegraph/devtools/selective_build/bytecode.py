"""Modules -> their bytecode for chosen versions of Python, as a zipapp is faster to start with.

    bytecode/cpython-311/delegraph/errors.pyc   beside delegraph/errors.py

Python compiles what it imports from a zip file anew in each process. A folder of bytecode on `sys.path` goes before the
sources, which serve every other version. Files that packages have besides Python are there, too: they look beside them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from delegraph.errors import InvalidArgument

__all__ = ["PREAMBLE", "compiled"]

FOLDER: Final = "bytecode"

PREAMBLE: Final = f"""import os, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(__file__)), {FOLDER!r}, sys.implementation.cache_tag))
"""
"""The first thing that the package in a zipapp does."""

_COMPILE: Final = """
import json, pathlib, py_compile, sys
print(sys.implementation.cache_tag)
for path in json.load(sys.stdin):
    py_compile.compile(
        f"{sys.argv[1]}/{path}", f"{sys.argv[2]}/{path}c", path, doraise=True,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
"""


def compiled(files: Mapping[str, bytes], version: str) -> dict[str, bytes]:
    """By archive path the bytecode of the modules among `files`, and their other files, for a Python such as "3.11".

    That Python compiles: `python3.11` on the PATH, or this one. Raises `InvalidArgument` where there is none.
    """
    modules = [path for path in files if path.endswith(".py") and "/" in path]
    others = {path: data for path, data in files.items() if not path.endswith((".py", ".pte"))}
    with tempfile.TemporaryDirectory() as name:
        sources, made = Path(name, "sources"), Path(name, "made")
        for path in modules:
            (sources / path).parent.mkdir(parents=True, exist_ok=True)
            (sources / path).write_bytes(files[path])
        command = [_python(version), "-I", "-c", _COMPILE, str(sources), str(made)]
        done = subprocess.run(command, input=json.dumps(modules), capture_output=True, text=True, check=False)
        if done.returncode:
            raise InvalidArgument(f"Python {version} does not compile the modules:\n{done.stderr.strip()}")
        place = f"{FOLDER}/{done.stdout.strip()}"
        code = {f"{path}c": (made / f"{path}c").read_bytes() for path in modules}
    return {f"{place}/{path}": data for path, data in {**code, **others}.items()}


def _python(version: str) -> str:
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    path = shutil.which(f"python{version}")
    if path is None:
        raise InvalidArgument(
            f"bytecode for Python {version} is made by that Python, and there is no python{version} on the PATH:"
            " install it, or leave --bytecode out: the zipapp runs without, and starts slower"
        )
    return path
