"""A version -> a release: every distribution bumped to it, the changelog closed, built, checked, committed, tagged.

    python -m tools.release 0.2.0
    python -m tools.release 0.2.0 --dry-run

All of it is done on a copy first; this tree changes, in one commit, once every distribution is built there and twine
has found nothing. `--dry-run` ends before that. The tag, once pushed, has `.github/workflows/release.yml` publish it.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from tools.distributions import ROOT, build, check, distributions

__all__ = ["ReleaseError", "bumped", "closed", "edits", "main", "release"]

_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:(a|b|rc)(\d+))?")
"""The versions of PEP 440 that are of use here: releases, and candidates before them."""

_OPEN: Final = "## Unreleased"


class ReleaseError(Exception):
    """Something has to be put right before there can be a release."""


def release(root: Path, version: str, *, dry_run: bool) -> list[Path]:
    """Release all distributions of the repository `root` as `version`; the files that are built, in `root`/dist.

    Raises `ReleaseError`, and `RuntimeError` where something cannot be built or published.
    """
    if not dry_run:
        _check_repository(root, version)
    changed = edits(root, version, datetime.now(UTC).date())
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "copy"
        for file in _tracked(root):
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / file, copy / file)
        _write(copy, changed)
        made = [file for distribution in distributions(copy) for file in build(distribution, copy / "dist")]
        check(made)
        if dry_run:
            return [root / "dist" / file.name for file in made]
        shutil.rmtree(root / "dist", ignore_errors=True)
        shutil.copytree(copy / "dist", root / "dist")
    _write(root, changed)
    _git(root, "commit", "--all", "--quiet", "--message", f"release: {version}")
    _git(root, "tag", "--annotate", f"v{version}", "--message", f"Delegraph {version}")
    return [root / "dist" / file.name for file in made]


def edits(root: Path, version: str, today: date) -> dict[Path, str]:
    """Every file that names the version, as it is for `version`, by its path below `root`."""
    projects = [distribution.folder / "pyproject.toml" for distribution in distributions(root)]
    versions = {file: tomllib.loads(file.read_text("utf-8"))["project"]["version"] for file in projects}
    if len(set(versions.values())) != 1:
        listed = ", ".join(f"{file.relative_to(root)}: {version}" for file, version in versions.items())
        raise ReleaseError(f"the distributions have several versions ({listed}); give them one")
    old = versions[projects[0]]
    if _order(version) < _order(old):  # the first release has their version; what is released is in the changelog
        raise ReleaseError(f"{version} comes before {old}, the version that all distributions have")
    changed = {Path("CHANGELOG.md"): closed((root / "CHANGELOG.md").read_text("utf-8"), version, today)}
    for file in _tracked(root):
        if file.suffix in (".toml", ".md") and file.name != "CHANGELOG.md":
            text = (root / file).read_text("utf-8")
            after = bumped(text, old, version, own=root / file in versions)
            changed |= {file: after} if after != text else {}
    return changed


def bumped(text: str, old: str, new: str, *, own: bool) -> str:
    """`text` with requirements of our distributions for the new series; if it is `own`, with the new version."""
    named = rf"(?<![\w-])(delegraph[\w-]*(?:\[[\w,-]+\])?){re.escape(_series(old))}(?![\d.])"
    text = re.sub(named, rf"\g<1>{_series(new)}", text)
    return re.sub(rf'^version = "{re.escape(old)}"$', f'version = "{new}"', text, flags=re.MULTILINE) if own else text


def closed(changelog: str, version: str, today: date) -> str:
    """The changelog with what is unreleased under the version and its day. Raises `ReleaseError` if that is nothing."""
    before, heading, after = changelog.partition(f"{_OPEN}\n")
    if not heading:
        raise ReleaseError(f"CHANGELOG.md has no section '{_OPEN}'")
    if f"\n## {version} " in after:
        raise ReleaseError(f"CHANGELOG.md has a section for {version} already")
    if not re.search(r"^- ", after.partition("\n## ")[0], re.MULTILINE):
        raise ReleaseError(f"CHANGELOG.md has nothing under '{_OPEN}': say what this release brings")
    return f"{before}{_OPEN}\n\n## {version} - {today.isoformat()}\n{after}"


def _order(version: str) -> tuple[int | str, ...]:
    """The key by which versions are compared; a candidate comes before its release."""
    match = _VERSION.fullmatch(version)
    if match is None:
        raise ReleaseError(f"{version!r} is not a version such as 0.2.0 or 0.2.0rc1")
    major, minor, patch, stage, number = match.groups()
    return int(major), int(minor), int(patch), stage or "release", int(number or 0)


def _series(version: str) -> str:
    """Versions that work together: those of one minor version."""
    major, minor, *_ = _order(version)
    return f">={major}.{minor},<{major}.{int(minor) + 1}"


def _check_repository(root: Path, version: str) -> None:
    if changes := _git(root, "status", "--porcelain", "--untracked-files=no"):
        raise ReleaseError(f"commit these changes first, or put them away:\n{changes}")
    if _git(root, "tag", "--list", f"v{version}"):
        raise ReleaseError(f"there is a tag v{version} already")


def _tracked(root: Path) -> list[Path]:
    return [Path(name) for name in _git(root, "ls-files", "-z").split("\0") if name and (root / name).is_file()]


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout


def _write(root: Path, texts: dict[Path, str]) -> None:
    for file, text in texts.items():
        (root / file).write_text(text, "utf-8")


def main(words: list[str] | None = None, root: Path = ROOT) -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description="Release all distributions.")
    parser.add_argument("version", help="such as 0.2.0, or 0.2.0rc1")
    parser.add_argument("--dry-run", action="store_true", help="build and check on a copy; change nothing here")
    args = parser.parse_args(words)
    try:
        made = release(root, args.version, dry_run=args.dry_run)
    except (ReleaseError, RuntimeError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(*(file.relative_to(root) for file in made), sep="\n")
    print(
        "nothing was changed" if args.dry_run else f"tagged v{args.version}; next: git push --follow-tags publishes it"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
