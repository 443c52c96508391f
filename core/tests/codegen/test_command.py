"""`delegraph codegen`: what it writes, `--check`, and its exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from delegraph.cli import main

YAML = """\
- op: sample_ops::put
  kernels:
    - arg_meta: null
      kernel_name: sample_ops.kernels:put
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run the command in, with a kernels.yaml beside a package."""
    (tmp_path / "my_package").mkdir()
    (tmp_path / "kernels.yaml").write_text(YAML)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    try:
        code: object = main(["codegen", "kernels.yaml", "-o", "my_package/_registration.py", *words])
    except SystemExit as exit:
        code = exit.code
    assert isinstance(code, int)
    return code, *capsys.readouterr()


def test_the_module_is_named_after_its_package_and_says_where_it_is_from(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = "my_package/_registration.py: kernel library 'my_package', 1 kernels\n"
    assert run(capsys, "--import", "sample_ops.operators") == (0, told, "")
    text = (package / "my_package/_registration.py").read_text()
    assert text.startswith('"""The kernel library \'my_package\': what ../kernels.yaml lists.\n')
    assert 'library = KernelLibrary("my_package")\n' in text
    assert run(capsys, "--library", "mine")[0] == 0
    assert 'library = KernelLibrary("mine")\n' in (package / "my_package/_registration.py").read_text()


def test_check_tells_whether_it_is_up_to_date(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stale = "my_package/_registration.py is not what kernels.yaml gives: run the command without --check\n"
    assert run(capsys, "--check") == (1, "", stale)
    assert not (package / "my_package/_registration.py").exists()
    assert run(capsys)[0] == 0
    assert run(capsys, "--check") == (0, "my_package/_registration.py is up to date\n", "")
    (package / "kernels.yaml").write_text(YAML.replace("kernels:put", "kernels:any_call"))
    before = (package / "my_package/_registration.py").read_bytes()
    assert run(capsys, "--check") == (1, "", stale)
    assert (package / "my_package/_registration.py").read_bytes() == before


def test_with_a_violation_nothing_is_written(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (package / "kernels.yaml").write_text(YAML + "- op: ad.out\n  kernels: []\n")
    assert run(capsys) == (
        1,
        "",
        "delegraph codegen: kernels.yaml:5: torch has no operator aten::ad;"
        " did you mean aten::pad or aten::add or aten::rand?\n",
    )
    assert list((package / "my_package").iterdir()) == []


def test_what_defines_the_operators_may_be_in_the_working_directory(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (package / "operators_of_mine.py").write_text("import sample_ops.operators\n")
    assert run(capsys, "--import", "operators_of_mine")[0] == 0
    code, _, told = run(capsys, "--import", "nobodys")
    assert (code, told) == (
        1,
        "delegraph codegen: --import nobodys: importing it raised ModuleNotFoundError: No module named 'nobodys'\n",
    )


@pytest.mark.usefixtures("package")
def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, told = run(capsys, "--library", 'a"b')
    assert code == 2
    assert "--library 'a\"b': a name has letters, digits, - and _" in told
    with pytest.raises(SystemExit) as exit:
        main(["codegen", "kernels.yaml"])
    assert exit.value.code == 2


@pytest.mark.usefixtures("package")
def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["codegen", "others.yaml", "-o", "my_package/_registration.py"])
    assert code == 1
    assert "No such file or directory: 'others.yaml'" in capsys.readouterr().err
