"""A library's package -> its `operators.py`: which module registers which operators, told by importing every module."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

__all__ = ["renewed"]

_WATCH = """
import importlib, json, pkgutil, sys
from delegraph.interfaces import KernelLibrary

add, registered = KernelLibrary.add, {}

def watched(self, kernel):
    frame = sys._getframe(1)
    while frame.f_code.co_name != "<module>":
        frame = frame.f_back
    registered.setdefault(frame.f_globals["__name__"], set()).add(kernel.op)
    add(self, kernel)

KernelLibrary.add = watched
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
print(json.dumps({module: sorted(operators) for module, operators in registered.items()}))
"""

_HEAD = '''"""Modules -> their operators. `pytest tests/kernels/test_module_tables.py --renew` writes it."""

from __future__ import annotations

from typing import Final

__all__ = ["OPERATORS"]

_TABLE: Final = {
'''

_TAIL = """}

OPERATORS: Final = {module: operators.split() for module, operators in _TABLE.items()}
"""


def renewed(package: str) -> str:
    """The file's text."""
    done = subprocess.run([sys.executable, "-c", _WATCH, package], capture_output=True, text=True, check=True)
    rows = "".join(_row(module, operators) for module, operators in sorted(json.loads(done.stdout).items()))
    return f"{_HEAD}{rows}{_TAIL}"


def _row(module: str, operators: list[str]) -> str:
    row = f'    "{module}": "{" ".join(operators)}",\n'
    if len(row) <= 121:
        return row
    text = " ".join(operators)
    lines = [text] if len(text) <= 110 else textwrap.wrap(text, 109, break_long_words=False, break_on_hyphens=False)
    strings = [*(f'"{line} "' for line in lines[:-1]), f'"{lines[-1]}"']
    return f'    "{module}": (\n' + "".join(f"        {string}\n" for string in strings) + "    ),\n"
