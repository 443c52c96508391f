"""A release: one version everywhere, a closed changelog, a commit and a tag, or nothing at all and the reason why."""

from __future__ import annotations

import subprocess
from datetime import date
from pathlib import Path

import pytest
from tools.distributions import ROOT, build, distributions
from tools.release import ReleaseError, bumped, closed, edits, main

from tools import release as releasing

CHANGELOG = "# Changelog\n\n## Unreleased\n\n### Added\n\n- A thing.\n\n## 0.1.0 - 2026-01-01\n\n- The first.\n"

PYPROJECT = """[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1.0"
description = "A package"
readme = "README.md"
requires-python = ">=3.11"
dependencies = [{requires}]

[tool.hatch.build]
only-include = ["{package}"]
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two distributions, of which one requires the other."""
    for folder, name, requires in (
        ("", "delegraph", ""),
        ("plugins/acme", "delegraph-acme", '"delegraph[aot]>=0.1,<0.2"'),
    ):
        package = name.replace("-", "_")
        (tmp_path / folder / package).mkdir(parents=True)
        (tmp_path / folder / package / "__init__.py").write_text("")
        (tmp_path / folder / "README.md").write_text(f"# {name}\n\nRequires `delegraph>=0.1,<0.2`.\n")
        text = PYPROJECT.format(name=name, package=package, requires=requires)
        (tmp_path / folder / "pyproject.toml").write_text(text)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    return tmp_path


def git(root: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=Tester", "-c", "user.email=tester@example.org", *words]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The versions that distributions had when they were to be built, which takes seconds each."""
    versions = []

    def note(distribution, into):
        into.mkdir(exist_ok=True)
        (into / f"{distribution.package.name}.whl").write_text("")
        versions.append(
            (distribution.folder / "pyproject.toml").read_text().partition('version = "')[2].partition('"')[0]
        )
        return [into / f"{distribution.package.name}.whl"]

    monkeypatch.setattr(releasing, "build", note)
    monkeypatch.setattr(releasing, "check", lambda files: None)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "Tester")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "tester@example.org")
    return versions


def test_a_release(repository: Path, built: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["0.2.0"], repository) == 0
    assert built == ["0.2.0", "0.2.0"]
    assert git(repository, "log", "-1", "--format=%s").strip() == "release: 0.2.0"
    assert git(repository, "describe", "--exact-match").strip() == "v0.2.0"
    assert git(repository, "status", "--porcelain", "--untracked-files=no") == ""
    acme = (repository / "plugins/acme/pyproject.toml").read_text()
    assert 'version = "0.2.0"' in acme
    assert 'dependencies = ["delegraph[aot]>=0.2,<0.3"]' in acme
    assert "`delegraph>=0.2,<0.3`" in (repository / "README.md").read_text()
    assert (repository / "dist" / "delegraph_acme.whl").exists()
    assert capsys.readouterr().out.endswith("tagged v0.2.0; next: git push --follow-tags publishes it\n")


def test_a_dry_run_changes_nothing(repository: Path, built: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "README.md").write_text("being written\n")  # a tree in the midst of work can be tried as well
    before = {file: file.read_bytes() for file in repository.rglob("*") if file.is_file()}
    assert main(["0.2.0", "--dry-run"], repository) == 0
    assert built == ["0.2.0", "0.2.0"]
    assert {file: file.read_bytes() for file in repository.rglob("*") if file.is_file()} == before
    assert capsys.readouterr().out.endswith("nothing was changed\n")


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("0.1.0", "CHANGELOG.md has a section for 0.1.0 already"),
        ("0.1.0rc1", "0.1.0rc1 comes before 0.1.0, the version that all distributions have"),
        ("v0.2", "'v0.2' is not a version such as 0.2.0 or 0.2.0rc1"),
    ],
)
def test_a_version_that_cannot_be(
    repository: Path, capsys: pytest.CaptureFixture[str], version: str, message: str
) -> None:
    assert main([version], repository) == 1
    assert message in capsys.readouterr().err
    assert git(repository, "tag", "--list") == ""


def test_the_first_release_has_the_version_that_all_have(repository: Path, built: list[str]) -> None:
    changelog = repository / "CHANGELOG.md"
    changelog.write_text(CHANGELOG.partition("\n## 0.1.0")[0])
    git(repository, "commit", "--all", "--quiet", "-m", "nothing is released")
    assert main(["0.1.0"], repository) == 0
    assert built == ["0.1.0", "0.1.0"]
    assert "## Unreleased\n\n## 0.1.0 - " in changelog.read_text()
    assert git(repository, "tag", "--list") == "v0.1.0\n"


def test_what_is_not_committed_is_not_released(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "README.md").write_text("changed\n")
    assert main(["0.2.0"], repository) == 1
    assert "commit these changes first, or put them away:\n M README.md" in capsys.readouterr().err


def test_a_tag_that_is_there(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(repository, "tag", "v0.2.0")
    assert main(["0.2.0"], repository) == 1
    assert "there is a tag v0.2.0 already" in capsys.readouterr().err


def test_what_twine_refuses_changes_nothing(
    repository: Path, built: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(files: list[Path]) -> None:
        raise RuntimeError("twine refuses them: no description")

    monkeypatch.setattr(releasing, "check", refuse)
    assert main(["0.2.0"], repository) == 1
    assert "twine refuses them" in capsys.readouterr().err
    assert git(repository, "status", "--porcelain") == git(repository, "tag", "--list") == ""


def test_distributions_of_several_versions(repository: Path) -> None:
    file = repository / "plugins/acme/pyproject.toml"
    file.write_text(file.read_text().replace("0.1.0", "0.1.1"))
    with pytest.raises(
        ReleaseError, match=r"several versions \(pyproject.toml: 0.1.0, plugins/acme/pyproject.toml: 0.1.1\)"
    ):
        edits(repository, "0.2.0", date(2026, 11, 22))


def test_the_changelog_is_closed() -> None:
    after = closed(CHANGELOG, "0.2.0", date(2026, 11, 22))
    assert "## Unreleased\n\n## 0.2.0 - 2026-11-22\n\n### Added\n\n- A thing.\n\n## 0.1.0" in after
    with pytest.raises(ReleaseError, match="has nothing under '## Unreleased': say what this release brings"):
        closed(after, "0.3.0", date(2026, 11, 23))
    with pytest.raises(ReleaseError, match=r"has a section for 0\.1\.0 already"):
        closed(CHANGELOG, "0.1.0", date(2026, 11, 22))
    with pytest.raises(ReleaseError, match="has no section '## Unreleased'"):
        closed("# Changelog\n", "0.2.0", date(2026, 11, 22))


def test_only_our_requirements_are_bumped() -> None:
    ours, others = (
        '"delegraph>=0.1,<0.2", "delegraph-cpu[aot]>=0.1,<0.2"',
        '"fsspec>=0.1,<0.2", "my-delegraph>=0.1,<0.2"',
    )
    text = f'[{ours}, {others}]\nversion = "0.1.0"\n'
    after = bumped(text, "0.1.0", "1.0.0", own=False)
    assert after.startswith(f'["delegraph>=1.0,<1.1", "delegraph-cpu[aot]>=1.0,<1.1", {others}]')
    assert 'version = "0.1.0"' in after  # somebody else's
    assert bumped(text, "0.1.0", "0.1.1", own=True) == text.replace('"0.1.0"', '"0.1.1"')


def test_every_distribution_and_what_names_its_series_goes_along() -> None:
    changed = edits(ROOT, "9.9.9", date(2026, 11, 22))
    assert {one.folder / "pyproject.toml" for one in distributions(ROOT)} <= {ROOT / file for file in changed}
    assert Path("core/delegraph/cli/templates/backend/pyproject.toml") in changed
    assert Path("docs/writing-a-backend.md") in changed
    left = [file for file, text in changed.items() if "delegraph>=0.1" in text and file.name != "CHANGELOG.md"]
    assert left == []


@pytest.mark.install
def test_what_is_released_is_built_from_the_copy(repository: Path) -> None:
    """With the real builder: the version is in the files' names."""
    for file, text in edits(repository, "0.2.0rc1", date(2026, 11, 22)).items():
        (repository / file).write_text(text)
    names = [file.name for one in distributions(repository) for file in build(one, repository / "dist")]
    assert names == [
        "delegraph-0.2.0rc1.tar.gz",
        "delegraph-0.2.0rc1-py3-none-any.whl",
        "delegraph_acme-0.2.0rc1.tar.gz",
        "delegraph_acme-0.2.0rc1-py3-none-any.whl",
    ]
