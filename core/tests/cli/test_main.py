"""The command line as a whole: exit codes, messages, and what is imported."""

from __future__ import annotations

import ast
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from delegraph.cli import main
from delegraph.errors import InvalidProgram
from delegraph.plugins import PLUGIN_API
from delegraph.program import write_program
from delegraph.program.schema import Chain, ExecutionPlan, Program

Refused = Callable[..., str]

WITHOUT_TORCH = """
import sys
class NoTorch:
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoTorch())
from delegraph.cli import main
code = main(sys.argv[1:])
print([name for name in ("torch", "rich", "numpy", "pluggy") if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


def without_torch(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT_TORCH, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [("--help",), ("run", "--help"), ("lower", "--help"), ("codegen", "--help")])
def test_help_imports_next_to_nothing(words: tuple[str, ...]) -> None:
    script = "import sys, delegraph.cli\ntry: delegraph.cli.main(sys.argv[1:])\nfinally: print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True)
    assert "usage: delegraph" in done.stdout
    assert not {"torch", "numpy", "rich", "pluggy"} & set(eval(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("command", "imported"),
    [
        (("inspect", "--text"), "[]"),
        (("inspect", "--json"), "['numpy']"),
        (("run", "--method", "identities", "--json"), "['numpy']"),
    ],
)
def test_run_and_inspect_need_no_torch_and_json_no_rich(pte: str, command: tuple[str, ...], imported: str) -> None:
    done = without_torch(command[0], pte, *command[1:])
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert done.stderr.strip() == imported


def test_plugins_needs_no_torch() -> None:
    done = without_torch("plugins", "list", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "[]"


def test_python_m_delegraph(pte: str) -> None:
    command = [sys.executable, "-m", "delegraph", "inspect", pte, "--text"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("program version 0\n")


def test_a_terminal_that_lacks_a_character_is_shown_its_code(tmp_path: Path) -> None:
    plan = ExecutionPlan("größe", (), (), (), (Chain(()),))
    write_program(Program((plan,)), tmp_path / "m.pte")
    command = [sys.executable, "-m", "delegraph", "inspect", str(tmp_path / "m.pte"), "--text"]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ascii_only)
    assert (done.returncode, done.stderr) == (0, "")
    assert "method gr\\xf6\\xdfe" in done.stdout


def test_version_is_that_of_each_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["--version"])
    assert done.value.code == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first == f"delegraph {version('delegraph')}, plug-in API {'.'.join(map(str, PLUGIN_API))}"
    assert f"delegraph-portable {version('delegraph-portable')}, needs plug-in API 1.0" in others
    assert [line for line in others if line.startswith("delegraph ")] == []


def test_version_imports_no_plugin() -> None:
    script = "import sys; from delegraph.cli import main\ntry: main(['--version'])\nfinally: print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules = ast.literal_eval(done.stdout.splitlines()[-1])
    assert not {"torch", "numpy", "onnxruntime", "delegraph_portable", "delegraph_cpu"} & set(modules)


def test_an_unknown_command_is_wrong_usage(refused: Refused) -> None:
    choices = (
        "'lower', 'quantize', 'compare', 'debug', 'run', 'map', 'profile', 'inspect', 'diff', 'view', 'sign', 'select',"
    )
    others = "'bundle', 'push', 'codegen', 'cache', 'plugins', 'doctor', 'new'"
    assert f"invalid choice: 'walk' (choose from {choices} {others})" in refused("walk", code=2)


def test_no_command_is_wrong_usage(refused: Refused) -> None:
    assert "the following arguments are required" in refused(code=2)


@pytest.mark.parametrize("command", ["run", "inspect"])
def test_a_file_that_is_not_there(command: str, refused: Refused) -> None:
    message = refused(command, "no.pte", code=1)
    assert message == f"delegraph {command}: no.pte: cannot be opened: No such file or directory\n"


@pytest.mark.parametrize("command", ["run", "inspect"])
def test_a_file_that_is_no_program(command: str, tmp_path: Path, refused: Refused) -> None:
    file = tmp_path / "m.pte"
    file.write_bytes(b"certainly not a program")
    assert refused(command, str(file), code=1).startswith(f"delegraph {command}: {file}: not a .pte: bytes 4 to 8 are")


def test_traceback_shows_where_an_error_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "m.pte"
    file.write_bytes(b"certainly not a program")
    with pytest.raises(InvalidProgram, match=r"not a \.pte"):
        main(["inspect", str(file), "--traceback"])


def test_a_reader_that_has_seen_enough(pte: str) -> None:
    """As in `delegraph inspect m.pte --text | head -1`: no traceback."""
    script = "import sys; from delegraph.cli import main; sys.exit(main())"
    command = shlex.join([sys.executable, "-c", script, "inspect", pte, "--text"])
    done = subprocess.run(
        f"{command} | true; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
