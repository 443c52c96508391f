"""ExecuTorch's documentation at its tag -> for each piece of Python in it whether it runs here, imports changed.

    python -m plugins.executorch.tests.upstream.documentation [PAGE…]     # from the repository's folder; all pages
    python -m plugins.executorch.tests.upstream.documentation --unported PAGE…      # the same on ExecuTorch itself

The documentation is read from what `DELEGRAPH_EXECUTORCH_SOURCE` names, a clone, a bare repository or an unpacked tree,
else from GitHub's archive of the tag; nothing of it is kept. The pieces of a page run one after the other in one
namespace and a folder of their own, as a reader would type them, after setups/PAGE.py: that gives what the page speaks
of and does not show (a model, its inputs, a partitioner). ExecuTorch's wheel lies beside, as it does for a user of its
backends; `--unported` leaves the imports as they are and runs the page by the wheel's own Python. What is not Python to
run (signatures without a body, `…` for arguments, files in "/path/to", output) is not a piece. The wheel holds no
documentation, and there is no sdist.

`PAGES` are the pages on export, lowering, passes, delegates, memory planning, quantization, the runtime's Python API
and the developer tools. Left out: those on one vendor's backend or on language models, which need these packages, and
kernels in C++.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from plugins.executorch.tests.upstream.suite import REPOSITORY, executorch_package

from delegraph_executorch.port import ported

__all__ = ["EXPECTED_ERRORS", "PAGES", "pieces", "read_page", "run_page"]

TAG: Final = "v1.4.1"
ARCHIVE: Final = f"https://github.com/pytorch/executorch/archive/refs/tags/{TAG}.tar.gz"
SETUPS: Final = Path(__file__).with_name("setups")
RUNNER: Final = Path(__file__).with_name("run_pieces.py")

PAGES: Final = (
    "bundled-io.md",
    "compiler-backend-dialect.md",
    "compiler-custom-compiler-passes.md",
    "compiler-delegate-and-partitioner.md",
    "compiler-memory-planning.md",
    "debug-backend-delegate.md",
    "delegate-debugging.md",
    "etdump.md",
    "etrecord.rst",
    "examples-end-to-end-to-lower-model-to-delegate.md",
    "getting-started.md",
    "ir-exir.md",
    "memory-planning-inspection.md",
    "model-debugging.md",
    "pathway-quickstart.md",
    "quantization-overview.md",
    "tutorial-xnnpack-delegate-lowering.md",
    "using-executorch-export.md",
    "visualize.md",
    "tutorials_source/devtools-debugging-tutorial.py",
    "tutorials_source/devtools-integration-tutorial.py",
    "tutorials_source/export-to-executorch-tutorial.py",
)

EXPECTED_ERRORS: Final = {
    "bundled-io.md#3": "BundleMismatch",
    "bundled-io.md#4": "BundleMismatch",
    "compiler-custom-compiler-passes.md#9": "ValueError",
}
"""Pieces of which the page says that they raise; bundled programs raise an AssertionError there."""

FENCED: Final = re.compile(r"^```(?:python|py)\b[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
DIRECTIVE: Final = re.compile(r"^\.\. code-block:: python\n((?:[ \t]*\n|[ ]+[^\n]*\n)+)", re.MULTILINE)


def read_page(name: str) -> str:
    """The text of a page of `docs/source`."""
    source = os.environ.get("DELEGRAPH_EXECUTORCH_SOURCE")
    if source is None:
        with tarfile.open(_archive()) as archive:
            member = archive.extractfile(f"executorch-{TAG.removeprefix('v')}/docs/source/{name}")
            assert member is not None
            return member.read().decode()
    tree = Path(source) / "docs" / "source" / name
    if tree.exists():
        return tree.read_text(encoding="utf-8")
    command = ["git", "-C", source, "show", f"{TAG}:docs/source/{name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _archive() -> Path:
    """The archive of the tag, downloaded once into the folder for temporary files."""
    path = Path(tempfile.gettempdir()) / f"executorch-{TAG}.tar.gz"
    if not path.exists():
        with urllib.request.urlopen(ARCHIVE, timeout=60) as response:
            content = io.BytesIO(response.read())
        path.write_bytes(content.getbuffer())
    return path


def pieces(name: str, text: str) -> Iterator[tuple[str, str]]:
    """The pieces of Python of a page, ported, named "PAGE#1" …; a tutorial is one, and what its comments show more."""
    if name.endswith(".py"):
        comments = "".join(
            line.removeprefix("#").removeprefix(" ") if line.startswith("#") else "\n" for line in text.splitlines(True)
        )
        found = [*DIRECTIVE.findall(comments), text]
    else:
        found = (FENCED if name.endswith(".md") else DIRECTIVE).findall(text)
    for number, piece in enumerate(found, 1):
        source = ported(textwrap.dedent(piece))
        if _is_code(source):
            yield f"{name}#{number}", source


def _is_code(source: str) -> bool:
    if '"/path/to/' in source:
        return False
    try:
        statements = ast.parse(source).body
    except SyntaxError:
        return False
    calls = [node for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Call)]
    left_out = [a for call in calls for a in call.args if isinstance(a, ast.Constant) and a.value is ...]
    return not left_out and (bool(calls) or any(not isinstance(statement, ast.Expr) for statement in statements))


def run_page(name: str, text: str, scratch: Path, unported: bool = False) -> dict[str, str]:
    """Piece -> "" if it ran, else the last line of its exception. Each page has a Python of its own."""
    setup = SETUPS / f"{Path(name).stem}.py"
    program = {
        "setups": [path.read_text(encoding="utf-8") for path in (SETUPS / "every_page.py", setup) if path.exists()],
        "pieces": list(pieces(name, text)),
        "fallback": str(executorch_package().parent),
        "results": str(scratch / "results.json"),
    }
    if unported:
        program["setups"] = [text.replace("delegraph_executorch", "executorch") for text in program["setups"]]
        program["pieces"] = [(n, text.replace("delegraph_executorch", "executorch")) for n, text in program["pieces"]]
    python = executorch_package().parents[3] / "bin" / "python" if unported else sys.executable
    command = [str(python), "-W", "ignore", str(RUNNER)]
    done = subprocess.run(
        command,
        input=json.dumps(program),
        capture_output=True,
        text=True,
        cwd=scratch,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        timeout=900,
        check=False,
    )
    results = scratch / "results.json"
    if not results.exists():
        return {f"{name}#0": done.stderr.strip().splitlines()[-1]}
    outcome: dict[str, str] = json.loads(results.read_text())
    return outcome


def main(names: Sequence[str]) -> int:
    failed = total = 0
    unported = "--unported" in names
    for name in [name for name in names if not name.startswith("--")] or PAGES:
        with tempfile.TemporaryDirectory() as scratch:
            for piece, raised in run_page(name, read_page(name), Path(scratch), unported).items():
                expected = EXPECTED_ERRORS.get(piece, "")
                fails = raised.split(":")[0] != expected
                failed, total = failed + fails, total + 1
                print(f"{'fails' if fails else 'runs ':5} {piece}  {raised.strip()[:300]}", flush=True)
    print(f"{total - failed} of {total} pieces run")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
