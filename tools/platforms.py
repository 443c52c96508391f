"""Debian's Python and NumPy for another processor, in a folder -> an interpreter of it, which QEMU runs here.

    build/platforms/aarch64/root      packages of Debian, unpacked: nothing is installed, no rights are needed
    build/platforms/aarch64/python    their Python, run by qemu-user; processes that it starts are not emulated

`python -m tools.platforms` makes those that are not there yet, or whose packages are others now.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.distributions import ROOT
from tools.environments import setting

__all__ = ["PLATFORMS", "Platform", "lacking", "ready"]

_PACKAGES: Final = ("python3", "python3-numpy", "python3-pip")
_KEYRING: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
_FOLDER: Final = ROOT / "build" / "platforms"


@dataclass(frozen=True, slots=True)
class Platform:
    """A processor: its name in Linux, in Debian and in QEMU, and the release of Debian that is run.

    cpu: the one that QEMU emulates, or its own. shown: files below the root, where QEMU looks first: onnxruntime reads
    what processor it runs on, and ends where that is this machine's.
    """

    name: str
    debian: str
    qemu: str
    suite: str = "trixie"  # the first with a NumPy that we admit (2.2; bookworm has 1.24) and with riscv64
    is_big_endian: bool = False
    cpu: str = ""
    shown: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """All that is kept of it."""
        return _FOLDER / self.name

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "python"

    @property
    def emulator(self) -> str:
        """The program of Debian's qemu-user-static that runs it."""
        return f"qemu-{self.qemu}-static"


_CORTEX_A72: Final = """\
processor\t: 0
Features\t: fp asimd evtstrm crc32 cpuid
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: 0xd08
CPU revision\t: 3
"""
"""/proc/cpuinfo there. Arm's numbers: "Cortex-A72 Technical Reference Manual", register MIDR_EL1."""

_CPU: Final = "sys/devices/system/cpu"

PLATFORMS: Final = (
    Platform(
        "aarch64",
        "arm64",
        "aarch64",
        cpu="cortex-a72",  # QEMU's own has pointer authentication, with which all takes six times as long
        shown={"proc/cpuinfo": _CORTEX_A72, f"{_CPU}/possible": "0\n", f"{_CPU}/present": "0\n"},
    ),
    Platform("armhf", "armhf", "arm"),
    Platform("riscv64", "riscv64", "riscv64"),
    Platform("s390x", "s390x", "s390x", suite="forky", is_big_endian=True),  # trixie's index names files that are gone
)
"""The processors beside x86-64: docs/platforms.md says what is promised of each."""


def lacking() -> list[str]:
    """The command that installs what is needed and not here, on Debian and Ubuntu; [] if all is here."""
    needed = {
        "qemu-user-static": [platform.emulator for platform in PLATFORMS],
        "openssh-server": ["/usr/sbin/sshd"],
        "apt": ["apt-get"],
        "dpkg": ["dpkg-deb"],
        "tar": ["tar"],
    }
    packages = [package for package, programs in needed.items() if not all(map(shutil.which, programs))]
    if not Path(_KEYRING).exists():
        packages.append("debian-archive-keyring")
    return ["apt-get", "install", "--yes", "--no-install-recommends", *packages] if packages else []


def ready(platform: Platform) -> None:
    """Fetch and unpack what is not there. Raises `CalledProcessError`."""
    stamp = platform.folder / ".unpacked"
    fingerprint = hashlib.sha256(repr((platform, _PACKAGES)).encode() + _script(platform)).hexdigest()
    if stamp.is_file() and stamp.read_text("utf-8") == fingerprint:
        return
    print(f"fetching Debian {platform.suite} for {platform.debian}", flush=True)
    shutil.rmtree(platform.folder, ignore_errors=True)
    root = platform.folder / "root"
    for name in ("bin", "lib", "sbin"):  # as merged below /usr
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in _fetched(platform):
        _unpack(package, root)
    for place, text in platform.shown.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(text, "utf-8")
    for library in root.glob("usr/lib/*/*/lib*.so.3"):  # which update-alternatives would link: BLAS and LAPACK
        (library.parents[1] / library.name).symlink_to(library.relative_to(library.parents[1]))
    shutil.rmtree(platform.folder / "apt")
    platform.python.write_bytes(_script(platform))
    platform.python.chmod(0o755)
    subprocess.run([platform.python, "-c", "import numpy"], check=True)
    stamp.write_text(fingerprint, "utf-8")


def _mirror() -> str:
    """Where Debian's packages are: as DEBIAN says, or as this machine's own, if it runs Debian."""
    if chosen := setting("DEBIAN"):
        return chosen
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)"], check=True, capture_output=True, text=True
    )
    for address in listed.stdout.split():
        if address.rstrip("/").endswith("/debian"):
            return address
    sys.exit("this machine's packages come from no mirror of Debian; name one: make test-platforms DEBIAN=http://…")


def _fetched(platform: Platform) -> Iterator[Path]:
    """The packages' files, fetched by an apt that knows this processor alone, and no system that they are for."""
    apt = platform.folder / "apt"
    for folder in ("lists/partial", "archives/partial"):
        (apt / folder).mkdir(parents=True)
    (apt / "status").touch()
    (apt / "sources.list").write_text(f"deb [signed-by={_KEYRING}] {_mirror()} {platform.suite} main\n", "utf-8")
    settings = {
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State": apt,
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt,
        "APT::Architecture": platform.debian,
        "APT::Architectures": platform.debian,
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    subprocess.run(["apt-get", "--quiet=2", *options, "update"], check=True)
    subprocess.run(["apt-get", "--quiet=2", "--yes", *options, "--download-only", "install", *_PACKAGES], check=True)
    yield from sorted((apt / "archives").glob("*.deb"))


def _unpack(package: Path, root: Path) -> None:
    """Unpack as `dpkg-deb --extract` does, but through the links of a merged /usr."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as files:
        subprocess.run(["tar", "-x", "--keep-directory-symlink", "-C", str(root)], stdin=files.stdout, check=True)


def _script(platform: Platform) -> bytes:
    """Paths of Python's own are given whole: QEMU looks for what it does not find below `root` on this machine."""
    return f"""#!/bin/sh
root="{platform.folder / "root"}"
export LC_ALL=C.UTF-8 PYTHONHOME="$root/usr"
export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}$root/usr/lib/python3/dist-packages"
exec {platform.emulator}{platform.cpu and f" -cpu {platform.cpu}"} -L "$root" "$root/usr/bin/python3" -s -S "$@"
""".encode()


if __name__ == "__main__":
    if install := lacking():
        if not os.environ.get("CI"):  # elsewhere somebody may want to know
            sys.exit(f"what runs other processors' programs is not here: {' '.join(install)}")
        subprocess.run([*([] if os.geteuid() == 0 else ["sudo"]), *install], check=True)
    for each in PLATFORMS:
        ready(each)
