"""Programs -> a folder with them, the wheels that run them, and `install.sh`, which needs no network.

DIR/m.pte  DIR/m.ptd     the programs and their external weights
DIR/wheels/*.whl         the runtime, kernel libraries and backends, and all that they require
DIR/bundle.json          what was asked for, what was checked, and a SHA-256 of each file
DIR/install.sh           checks these, installs the wheels, and loads the programs
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from delegraph.devtools.offline_bundle.requirements import Required, required, with_requirements
from delegraph.devtools.offline_bundle.wheels import fetch, make_wheel
from delegraph.devtools.selective_build.deployed import OrderOfNames
from delegraph.devtools.selective_build.distributions import Distribution
from delegraph.devtools.selective_build.needs import ProgramNeeds, needs_of
from delegraph.errors import BundleError, InvalidProgram
from delegraph.program.files.deserialize import deserialize_program
from delegraph.program.files.file_digest import file_digest

__all__ = ["OfflineBundle", "bundle"]


@dataclass(frozen=True, slots=True)
class OfflineBundle:
    """A folder's content: `files` are digests by path, `checked` are sentences."""

    programs: tuple[str, ...]
    data: tuple[str, ...]
    platform: str
    python: str
    requirements: tuple[str, ...]
    checked: tuple[str, ...]
    files: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and strings."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Target:
    """The machine: a platform as in a wheel's name, and a Python such as 3.11."""

    platform: str
    python: str


def bundle(
    programs: Sequence[Path],
    data: Sequence[Path],
    into: Path,
    target: Target,
    kernels: OrderOfNames | None = None,
    find_links: Sequence[str] = (),
    more: Sequence[str] = (),
    pip: Sequence[str] = (),
) -> OfflineBundle:
    """Gather what programs need on a machine, in a new folder, which is there whole or not at all.

    find_links: folders or pages with wheels, which pip looks into first. more: further requirements, such as
    `delegraph[cli]`. pip: more words for `pip download`, such as `--no-index`.

    Raises `BundleError` where a wheel is not to be had, `OperatorMissing` and `BackendMissing` for what is not
    installed here, `InvalidProgram`, and `OSError`.
    """
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise BundleError(f"{into} is there already; name a new folder")
    names = [file.name for file in (*programs, *data)]
    if len(set(names)) < len(names):
        raise BundleError(f"two files have one name among {', '.join(names)}; rename one")
    needs = [_needs(file) for file in programs]
    distributions = required(needs, kernels)
    _require_python(distributions, target)
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{into.name}-", dir=into.parent) as name:
        folder = Path(name) / "bundle"
        (folder / "wheels").mkdir(parents=True)
        made = Path(name) / "made"
        made.mkdir()
        texts = [*(each.text for each in distributions), *more]
        for own in with_requirements([each.distribution for each in distributions]):
            if not any(_has_wheel(link, own) for link in find_links):
                make_wheel(own, made)
        wheels = fetch(texts, folder / "wheels", target.platform, target.python, [*find_links, str(made)], pip)
        for file in (*programs, *data):
            shutil.copyfile(file, folder / file.name)
        written = OfflineBundle(
            programs=tuple(file.name for file in programs),
            data=tuple(file.name for file in data),
            platform=target.platform,
            python=target.python,
            requirements=tuple(texts),
            checked=tuple(_checked(needs, distributions, wheels, target)),
            files={path.relative_to(folder).as_posix(): file_digest(path) for path in sorted(folder.rglob("*.*"))},
        )
        (folder / "bundle.json").write_text(json.dumps(written.to_json(), indent=2), encoding="utf-8")
        (folder / "install.sh").write_text(_installer(written), encoding="utf-8", newline="\n")
        (folder / "install.sh").chmod(0o755)
        if into.exists():
            into.rmdir()
        folder.rename(into)
    return written


def _needs(file: Path) -> ProgramNeeds:
    try:
        return needs_of(str(file), deserialize_program(file.read_bytes()))
    except InvalidProgram as error:
        raise InvalidProgram(f"{file}: {error}") from error


def _require_python(distributions: Sequence[Required], target: Target) -> None:
    """Raise `BundleError` for a Python that is older than a distribution admits."""
    for each in distributions:
        lowest = re.search(r">=\s*(\d+)\.(\d+)", each.distribution.requires_python)
        if lowest and tuple(map(int, target.python.split(".")[:2])) < (int(lowest[1]), int(lowest[2])):
            needs = f"{each.distribution.name} needs Python {each.distribution.requires_python}"
            raise BundleError(f"{needs}, and --python is {target.python}")


def _has_wheel(link: str, distribution: Distribution) -> bool:
    stem = f"{re.sub(r'[-_.]+', '_', distribution.name)}-{distribution.version}-"
    return any(file.name.startswith(stem) for file in Path(link).glob("*.whl"))


def _checked(
    needs: Sequence[ProgramNeeds], distributions: Sequence[Required], wheels: Sequence[Path], target: Target
) -> Iterator[str]:
    for program in needs:
        calls = {call.operator for call in program.calls if not call.is_prim}
        kernels = [f"its operators ({len(calls)}) have kernels"] if calls else []
        kinds = [*kernels, *(f"the backend {name} is here" for name in program.backends)]
        yield f"{Path(program.path).name}: {', '.join(kinds) or 'it calls nothing'}"
        if program.has_external_data:
            yield f"{Path(program.path).name}: it has weights in .ptd files"
    for each in distributions:
        yield f"{each.text}: {', '.join(each.plugins) or 'the runtime'}"
    total = sum(file.stat().st_size for file in wheels)
    what = f"{len(wheels)} wheels, {total:,} bytes, are all that these require"
    yield f"{what} on {target.platform} with Python {target.python}"


# ---- the installer -----------------------------------------------------------------------------------


_INSTALLER = """#!/bin/sh
# Installs {programs} with all that it needs, without a network:
#
#     sh install.sh                          into the environment of python3, or of PYTHON=path
#     sh install.sh --target DIR             more words are pip's
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${{PYTHON:-python3}}
target= last=
for word in "$@"; do
    case $last in -t | --target) target=$word ;; esac
    case $word in --target=*) target=${{word#*=}} ;; esac
    last=$word
done

command -v "$python" >/dev/null || {{
    echo "install.sh: there is no $python; name another one with PYTHON=path" >&2
    exit 1
}}
"$python" - "$here" <<'END'
{check}END
"$python" -m pip --version >/dev/null 2>&1 || {{
    echo "install.sh: $python has no pip: install it (python3 -m ensurepip, or apt install python3-pip)" >&2
    exit 1
}}
"$python" -m pip install --disable-pip-version-check --no-index --find-links "$here/wheels" "$@" {requirements}

[ -z "$target" ] || export PYTHONPATH="$target${{PYTHONPATH:+:$PYTHONPATH}}"
"$python" - "$here" <<'END'
{load}END
"""

_CHECK = """import hashlib, json, pathlib, sys
here = pathlib.Path(sys.argv[1])
told = json.loads((here / "bundle.json").read_text())
if "%d.%d" % sys.version_info[:2] != told["python"]:
    sys.exit("install.sh: these wheels are for Python %s, and %s is %d.%d; name another one with PYTHON=path"
             % (told["python"], sys.executable, *sys.version_info[:2]))
for name, digest in told["files"].items():
    path = here / name
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        sys.exit("install.sh: %s is damaged or missing; copy the folder again" % path)
"""

_LOAD = """import json, pathlib, sys
from delegraph import DelegraphError
from delegraph.runtime import Program
here = pathlib.Path(sys.argv[1])
told = json.loads((here / "bundle.json").read_text())
data = [here / name for name in told["data"]] or None
for name in told["programs"]:
    try:
        program = Program.load(here / name, data_path=data)
        for method in program.method_names:
            program.load_method(method)
    except DelegraphError as error:
        sys.exit("install.sh: %s cannot be loaded here: %s" % (here / name, error))
    print("%s can be loaded here" % (here / name))
"""


def _installer(bundle: OfflineBundle) -> str:
    return _INSTALLER.format(
        programs=", ".join(bundle.programs),
        check=_CHECK,
        load=_LOAD,
        requirements=" ".join(map(shlex.quote, bundle.requirements)),
    )
