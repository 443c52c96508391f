"""A folder -> an empty virtual environment in it, for what pip installs and what then runs there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

__all__ = ["Environment"]


class Environment:
    """A virtual environment; `base` is the Python that it is made of."""

    def __init__(self, folder: Path, base: str = sys.executable) -> None:
        self.folder = folder
        self.python = str(folder / "bin" / "python")
        run([base, "-m", "venv", folder], folder.parent)

    def install(self, *words: str | Path, cwd: Path | None = None) -> str:
        """`pip install words`; what it printed. Modules are compiled when they are imported, which is sooner."""
        return self.run("-m", "pip", "install", "--disable-pip-version-check", "--no-compile", *words, cwd=cwd)

    def run(self, *words: str | Path, cwd: Path | None = None) -> str:
        """Run its Python, in its own folder if no other is given; what that printed."""
        return run([self.python, *words], cwd or self.folder)

    def installed(self) -> set[str]:
        """The names of the distributions in it, without those that every environment has."""
        listed = json.loads(self.run("-m", "pip", "list", "--format", "json", "--disable-pip-version-check"))
        return {row["name"] for row in listed} - {"pip", "setuptools"}


def run(command: list[str | Path], cwd: Path) -> str:
    """Run `command` in a folder without our own settings of Python and Delegraph; what it printed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DELEGRAPH"))}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, encoding="utf-8", timeout=600, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout
