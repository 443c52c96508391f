"""Every Python snippet in the documentation runs: a page is one script, its blocks in order, in its own process.

Before that, blocks that name a file are written to it, one after the other, and those of the shell are run. Blocks of
`output` are what the script prints.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
ELSEWHERE = {"executorch-backends.md"}  # needs ExecuTorch's wheel: plugins/executorch/tests/bridge/test_docs_page.py
LIBRARIES = ("partitioners", "machines", "onnx")
READMES = [*(ROOT / name / "README.md" for name in LIBRARIES), *sorted(ROOT.glob("*/*/README.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^```\w+ (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"^```output\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def script(page: Path) -> str:
    """The page's blocks at their own line numbers, so that a traceback points into the page."""
    text = page.read_text("utf-8")
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        for i, line in enumerate(block[1].splitlines()):
            lines[first + i] = line
    return "\n".join(lines)


@pytest.mark.docs
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if BLOCK.search(page.read_text("utf-8")) and page.name not in ELSEWHERE],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_snippets_run(page: Path, tmp_path: Path) -> None:
    source = tmp_path / f"{page.stem}_page.py"  # logging.md is no module called logging
    source.write_text(script(page), "utf-8")
    for name, text in FILE.findall(page.read_text("utf-8")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        with (tmp_path / name).open("a", encoding="utf-8") as file:
            file.write(text)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in [
        *(["sh", "-e", "-c", text] for text in SHELL.findall(page.read_text("utf-8"))),
        [sys.executable, source],
    ]:
        ran = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
    printed = _shape(ran.stdout)
    for output in OUTPUT.findall(page.read_text("utf-8")):
        assert _shape(output) in printed, ran.stdout


def _shape(text: str) -> str:
    """`text` with all numbers and gaps alike: bytes and times are those of a machine and of versions."""
    return re.sub(r"\s+", " ", re.sub(r"\d[\d,.]*", "0", text)).strip()


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", [*PAGES, *READMES], ids=lambda page: str(page.relative_to(ROOT)))
def test_install_commands_name_what_is_there(page: Path) -> None:
    """Nothing of ours is on an index yet: commands name folders of the clone, built wheels, or others' packages."""
    commands = re.findall(r"^ *pip install ([^#\n]*)", page.read_text("utf-8"), re.MULTILINE)
    words = [word for command in commands for word in shlex.split(command)]
    assert [word for word in words if word.startswith("delegraph")] == []
    folders = [word.partition("[")[0] for word in words if word.startswith(".") and word != "./calculator"]
    assert [folder for folder in folders if not (ROOT / folder / "pyproject.toml").exists()] == []


@pytest.mark.parametrize("page", [*PAGES, *READMES], ids=lambda page: str(page.relative_to(ROOT)))
def test_install_commands_bring_our_own_dependencies(page: Path) -> None:
    """What a folder requires of ours is in the same command: pip finds it nowhere else."""
    for command in re.findall(r"^ *pip install ([^#\n]*)", page.read_text("utf-8"), re.MULTILINE):
        folders = [word for word in shlex.split(command) if word.startswith(".") and word != "./calculator"]
        installed: set[str] = set()
        required: set[str] = set()
        for folder, _, extras in (word.partition("[") for word in folders):
            project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"]
            installed.add(project["name"])
            optional = (project["optional-dependencies"][extra] for extra in extras.rstrip("]").split(",") if extra)
            lists = [project["dependencies"], *optional]
            required |= {re.split(r"[^\w-]", requirement)[0] for each in lists for requirement in each}
        ours = {name for name in required if name.startswith("delegraph")}
        assert ours <= installed, command
