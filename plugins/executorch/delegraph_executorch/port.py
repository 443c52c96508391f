"""Python source written for ExecuTorch -> the same source on Delegraph: its imports name `delegraph_executorch`.

python -m delegraph_executorch.port FILE_OR_FOLDER…          # rewrites the files, and says which
python -m delegraph_executorch.port --check FILE_OR_FOLDER…  # only says which; exit code 1 if there are any
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["main", "ported"]

PACKAGES = ("backends", "devtools", "examples", "exir", "export", "extension", "kernels", "runtime", "util")

# Names such as `executorch_call_delegate` and `ExecutorchBackendConfig` are ExecuTorch's own and stay.
IMPORTED = re.compile(
    rf"(?<![\w./-])executorch(?=\.(?:{'|'.join(PACKAGES)})\b)|(?<=^from )executorch(?= import )", re.MULTILINE
)


def ported(source: str) -> str:
    """`source` with `delegraph_executorch` wherever it names a package of ExecuTorch, in imports, names and strings."""
    return IMPORTED.sub("delegraph_executorch", source)


def python_files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.rglob("*.py")) if path.is_dir() else (path,)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m delegraph_executorch.port", description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE_OR_FOLDER")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if something would change")
    options = parser.parse_args(arguments)
    changed = 0
    for path in python_files(options.paths):
        source = path.read_text(encoding="utf-8")
        if (new := ported(source)) != source:
            changed += 1
            print(path)
            if not options.check:
                path.write_text(new, encoding="utf-8")
    return int(options.check and changed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
