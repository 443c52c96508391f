"""Distributions -> wheels of them, and of all that they require, for another platform: pip chooses and fetches.

What pip finds in no index is made here: of the sources of an installation in editable mode, or from a folder; else of
the installed files, if they run everywhere.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from delegraph.devtools.selective_build.distributions import PURE, Distribution
from delegraph.devtools.selective_build.package import packed, wheel_name
from delegraph.errors import BundleError

__all__ = ["fetch", "make_wheel", "platform_tags"]

_LOWEST: Final = {"x86_64": 5, "i686": 5}
"""The lowest glibc 2.x of manylinux for these processors, and 17 for others (PEP 513, 599, 600)."""
_FORMER: Final = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}
"""Names of manylinux before PEP 600, by glibc 2.x."""


def platform_tags(platform: str) -> list[str]:
    """The tags of wheels that run on a platform: those for an older C library too, the newest first (PEP 600, 656)."""
    parts = re.fullmatch(r"(manylinux_2|musllinux_1)_(\d+)_(\w+)", platform)
    if parts is None:
        return [platform]
    libc, newest, processor = parts[1], int(parts[2]), parts[3]
    lowest = 0 if libc == "musllinux_1" else _LOWEST.get(processor, 17)
    tags = []
    for minor in range(newest, min(lowest, newest) - 1, -1):
        tags.append(f"{libc}_{minor}_{processor}")
        if libc == "manylinux_2" and minor in _FORMER:
            tags.append(f"{_FORMER[minor]}_{processor}")
    return [*tags, f"linux_{processor}"]


def fetch(
    requirements: Sequence[str],
    into: Path,
    platform: str,
    python: str,
    find_links: Sequence[str],
    pip: Sequence[str] = (),
) -> list[Path]:
    """Have pip put wheels of the requirements, and of theirs, into a folder; `pip` are more words for it.

    Raises `BundleError` with pip's reasons.
    """
    links = [word for link in find_links for word in ("--find-links", link)]
    tags = [word for tag in platform_tags(platform) for word in ("--platform", tag)]
    fit = ["--only-binary=:all:", "--implementation", "cp", "--python-version", python, *tags]
    _pip("download", "--dest", str(into), *fit, *links, *pip, *requirements)
    return sorted(into.glob("*.whl"))


def make_wheel(distribution: Distribution, into: Path) -> bool:
    """Put a wheel of an installed distribution into a folder, if it can be made here.

    Raises `BundleError` where its sources cannot be built.
    """
    installed = metadata.distribution(distribution.name)
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    folder = Path(url2pathname(urlsplit(origin.get("url", "")).path))
    if "dir_info" in origin and folder.is_dir():
        isolation = [] if _needs_isolation(folder) else ["--no-build-isolation"]
        _pip("wheel", "--no-deps", "--wheel-dir", str(into), *isolation, str(folder))
        return True
    if distribution.tag != PURE:
        return False
    info, files = _installed_files(installed)
    identity = distribution.name, distribution.version
    (into / wheel_name(identity, PURE)).write_bytes(packed(files, info))
    return True


def _needs_isolation(folder: Path) -> bool:
    """Whether what builds the sources is not installed here."""
    settings = tomllib.loads((folder / "pyproject.toml").read_text("utf-8")).get("build-system", {})
    return find_spec(settings.get("build-backend", "setuptools").partition(".")[0]) is None


def _installed_files(installed: metadata.Distribution) -> tuple[str, dict[str, bytes]]:
    """The name of the folder of metadata, and the files as they lay in the wheel."""
    by_installer = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
    files, info = {}, ""
    for file in installed.files or ():
        if file.parts[0].endswith(".dist-info"):
            info = file.parts[0]
        is_own = file.parts[0] != ".." and file.suffix != ".pyc"  # scripts are made of entry points again
        if is_own and not (file.parts[0] == info and file.name in by_installer):
            files[file.as_posix()] = file.read_binary()
    return info, dict(sorted(files.items()))


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", words[0], "--quiet", "--disable-pip-version-check", *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reasons = "\n  ".join(_reasons(done.stderr)) or done.stderr.strip()
        raise BundleError(f"pip {words[0]} failed:\n  {reasons}")


def _reasons(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.startswith("ERROR: ") or "No module named pip" in line:
            yield line.removeprefix("ERROR: ").strip()
