"""The tasks of `tools/tasks.py`: what names them, runs them once and in order, and sets up what they need."""

from __future__ import annotations

import re
import shutil
import subprocess
import venv
from pathlib import Path

import pytest
from tools.distributions import DISTRIBUTIONS, ROOT
from tools.environments import VENV, Environment
from tools.runner import TASKS, listed, main

from tools import environments, runner, tasks


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that tasks would run; `fails` ends with the code 3."""
    commands: list[list[str]] = []

    def note(words: list[str], beside: Environment | None = None, **variables: str) -> None:
        commands.append(words[1:])
        if "benchmarks.dsp" in words:
            raise subprocess.CalledProcessError(3, words)

    monkeypatch.setattr(Environment, "ready", lambda self: self)
    for module in (runner, tasks):
        monkeypatch.setattr(module, "command", note)
    for task in TASKS.values():
        task.run.cache_clear()
    return commands


def test_tasks_run_in_order_and_each_once(ran: list[list[str]]) -> None:
    assert main(["soak", "test-wheels", "conformance"]) == 0
    soak, wheels, test_wheels, conformance = ran  # both of the last two need wheels
    assert soak[-2:] == ["-m", "soak"]
    assert wheels == ["-m", "tools.distributions", "dist"]
    assert "wheels or install" in test_wheels
    assert "conformance" in conformance


def test_the_first_failure_ends_it_with_its_code(ran: list[list[str]]) -> None:
    assert main(["bench", "soak"]) == 3
    assert ran[-1] == ["-m", "benchmarks.dsp"]


def test_settings_are_words_or_variables(ran: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUZZ", "7")
    monkeypatch.setenv("VERSION", "")
    assert main(["fuzz", "release", "VERSION=0.2.0", "DRY=--dry-run"]) == 0
    assert "-runs=7" in ran[1]
    assert ran[2] == ["-m", "tools.release", "0.2.0", "--dry-run"]


def test_each_torch_lies_beside_what_is_developed_with(ran: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHES", "")  # `main` sets it, and monkeypatch takes it back
    beside: list[str] = []
    monkeypatch.setattr(runner, "command", lambda words, place, **_: beside.append(place.folder))
    assert main(["test-torch", "TORCHES=2.14.0 2.14.1"]) == 0
    assert beside == ["build/torch-2.14.0", "build/torch-2.14.1"]
    assert tasks.with_torch("2.14.0").installs() == [["torch==2.14.0"]]
    assert all((ROOT / path).exists() for path in tasks.ON_EACH_TORCH)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("test-modles", "no task 'test-modles'; did you mean 'test-models'?"),
        ("NUMERIC=cpu", "no setting 'NUMERIC'; did you mean 'NUMERICS'?"),
    ],
)
def test_a_misspelt_word_runs_nothing(
    ran: list[list[str]], capsys: pytest.CaptureFixture[str], word: str, message: str
) -> None:
    assert main(["soak", word]) == 2
    assert message in capsys.readouterr().err
    assert ran == []


def test_the_list_has_every_task_with_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["help"]) == 0
    lines = listed().splitlines()
    for task in TASKS.values():
        assert any(re.fullmatch(rf"  {task.name} +{re.escape(task.says)}", line) for line in lines)
        assert task.says
    assert capsys.readouterr().out == (listed() + "\n") * 2


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
def test_make_hands_every_name_on() -> None:
    """Also `docs`, a folder that is there, and no name, which lists them."""
    for words, expected in (([], ["help"]), (["docs", "test-models"], ["docs", "test-models"])):
        command = ["make", "--dry-run", "PYTHON=py", *words]
        printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert [line for line in printed.splitlines() if line.startswith("py ")] == [
            f"py -m tools.tasks {name}" for name in expected
        ]


def test_every_task_that_a_document_names_is_there() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob(".github/**/*.md"), ROOT / "pyproject.toml"]
    pattern = re.compile(r"(?:`|\n {4,})make ([a-z -]+)")
    lines = [(page.name, line) for page in pages for line in pattern.findall(page.read_text("utf-8"))]
    named = [(page, name) for page, line in lines for name in line.split()]
    assert [(page, name) for page, name in named if name not in TASKS] == []
    assert ("CONTRIBUTING.md", "test") in named


def test_an_environment_has_its_programs_where_the_platform_puts_them(tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=False)
    environment = Environment(str(tmp_path), list, own_python=True)
    assert environment.python.is_file()
    assert environment.program("activate").with_suffix("").exists()


def test_every_distribution_is_installed_with_what_developing_takes() -> None:
    words = [word for words in VENV.installs() for word in words]
    for distribution in DISTRIBUTIONS:
        folder = distribution.folder.relative_to(ROOT).as_posix()
        extras = ",".join(extra for extra in ("aot", "cli") if extra in distribution.extras)
        assert f"./{folder}[{extras}]".removesuffix("[]") in words


def test_an_environment_is_installed_again_when_what_it_is_made_of_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requirements, folder = tmp_path / "requirements.txt", tmp_path / "folder"
    requirements.write_text("a\n")
    words = ["-r", str(requirements)]
    environment = Environment(str(folder), lambda: [words], own_python=True)
    installations: list[str] = []

    def note(command: list[str], **_: object) -> None:
        folder.mkdir(exist_ok=True)
        if "pip" in command:
            installations.append(" ".join(command[4:]))

    monkeypatch.setattr(environments.subprocess, "run", note)
    environment.ready()
    environment.ready()
    assert len(installations) == 1
    requirements.write_text("a==2\n")
    environment.ready()
    assert len(installations) == 2
    words.append("b")
    environment.ready()
    assert installations[2:] == [f"--quiet -r {requirements} b"]


def test_an_installation_that_failed_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Environment(str(tmp_path), lambda: [["a"]], own_python=True)

    def fail(command: list[str], **_: object) -> None:
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(environments.subprocess, "run", fail)
    for _ in range(2):
        with pytest.raises(subprocess.CalledProcessError):
            environment.ready()
