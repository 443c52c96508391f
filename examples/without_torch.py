"""Run a script where torch cannot be imported, as on a device:    python without_torch.py script.py arguments…"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path


class NoTorch(MetaPathFinder):
    """Refuses to find torch."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> None:
        if fullname.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"{fullname} was asked for where there is to be no torch", name=fullname)


if __name__ == "__main__":
    sys.meta_path.insert(0, NoTorch())
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))  # as Python itself does for a script
    runpy.run_path(sys.argv[0], run_name="__main__")
