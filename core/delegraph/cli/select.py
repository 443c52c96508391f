"""`delegraph select m.pte -o app.pyz`: a deployable with the kernels and backends that programs need, and no others."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from delegraph.cli import kernel_order

if TYPE_CHECKING:
    from delegraph.devtools.selective_build.choice import Choice
    from delegraph.devtools.selective_build.contents import Contents
    from delegraph.devtools.selective_build.deployed import OrderOfNames
    from delegraph.devtools.selective_build.needs import ProgramNeeds
    from delegraph.devtools.selective_build.report import Output, Report

__all__ = ["add_parser", "run"]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `select` to the command line."""
    parser = subparsers.add_parser("select", help="pack up what programs need to run, and nothing else")
    parser.add_argument("programs", metavar="m.pte", nargs="+", help="the programs; ExecuTorch's are read as well")
    parser.add_argument(
        "-o",
        "--output",
        dest="outputs",
        action="append",
        required=True,
        metavar="OUT",
        help="app.pyz: a zipapp with the programs in it; app.whl or app-1.0-py3-none-any.whl: a wheel; ops.yaml: the"
        " operators, for ExecuTorch's build. May be given several times",
    )
    kernel_order.add_argument(parser)
    parser.add_argument("--embed", action="store_true", help="put the programs into a wheel as well")
    parser.add_argument(
        "--bytecode",
        type=_versions,
        default=(),
        metavar="3.11,…",
        help="put bytecode for these versions of Python into a zipapp: with it the zipapp starts as fast as installed"
        " packages do, without it a few tenths of a second later",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def _versions(text: str) -> tuple[str, ...]:
    versions = tuple(text.split(","))
    for version in versions:
        major, dot, minor = version.partition(".")
        if not (major.isdecimal() and dot and minor.isdecimal()):
            raise argparse.ArgumentTypeError(f"{version!r} is no version of Python, such as 3.11")
    return versions


def run(args: argparse.Namespace) -> int:
    """Do what `args` say; returns the exit code."""
    makers = [(_maker(path), path) for path in args.outputs]
    programs = _named(args.programs)
    needs = [_needs(path, data) for path, data in zip(args.programs, programs.values(), strict=True)]
    build = _Build(programs, needs, kernel_order.kernel_order(args.kernels), args.embed, args.bytecode)
    outputs = [make(build, path) for make, path in makers]
    report = build.report(outputs)
    if args.json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        _print(report)
    return 0


@dataclass(slots=True)
class _Build:
    """The programs by name and their needs; then the last package made for them, if there is one."""

    programs: Mapping[str, bytes]
    needs: Sequence[ProgramNeeds]
    kernels: OrderOfNames | None
    embed: bool
    bytecode: tuple[str, ...]
    packed: tuple[Choice, Contents] | None = field(default=None)

    def pack(self, identity: tuple[str, str], embed: bool) -> Contents:
        """The files of a deployable called `identity`, with the programs in it if `embed`."""
        from delegraph.devtools.selective_build.choice import choose
        from delegraph.devtools.selective_build.contents import collect
        from delegraph.plugins.registry import default_registry

        choice = self.packed[0] if self.packed else choose(self.needs, default_registry(), self.kernels)
        contents = collect(choice, self.needs, _LAUNCHER, self.programs if embed else {}, identity)
        self.packed = choice, contents
        return contents

    def report(self, outputs: Sequence[Output]) -> Report:
        from delegraph.devtools.selective_build.report import Report

        sizes = {needs.path: len(data) for needs, data in zip(self.needs, self.programs.values(), strict=True)}
        operators = sorted({operator for needs in self.needs for operator in needs.operators})
        return Report.of(sizes, operators, outputs, self.packed)


_LAUNCHER: Final = "delegraph.cli.deployed"


def _named(paths: Sequence[str]) -> dict[str, bytes]:
    """The programs' bytes by the name that each has in a deployable: its file's."""
    named: dict[str, bytes] = {}
    for path in paths:
        name = Path(path).stem
        if name in named:
            raise argparse.ArgumentError(None, f"two programs are called {name!r}; rename the file {path}")
        named[name] = Path(path).read_bytes()
    return named


def _needs(path: str, data: bytes) -> ProgramNeeds:
    from delegraph.devtools.selective_build.needs import needs_of
    from delegraph.errors import InvalidProgram
    from delegraph.program.files.deserialize import deserialize_program

    try:
        return needs_of(path, deserialize_program(data))
    except InvalidProgram as error:
        raise InvalidProgram(f"{path}: {error}") from error


# ---- outputs -------------------------------------------------------------------------------------------


def _wheel(build: _Build, path: str) -> Output:
    from delegraph.devtools.selective_build.package import wheel, wheel_identity, wheel_name
    from delegraph.errors import InvalidArgument

    folder, name = os.path.split(path)
    try:
        identity = wheel_identity(name, _version())
    except InvalidArgument as error:
        raise argparse.ArgumentError(None, f"-o {path}: {error}") from error
    contents = build.pack(identity, build.embed)
    proper = wheel_name(identity, contents.tag)
    if name.count("-") == 4 and name != proper:
        raise argparse.ArgumentError(None, f"-o {path}: pip takes a wheel with these contents by the name {proper}")
    return _written(os.path.join(folder, proper), "wheel", wheel(contents, identity))


def _zipapp(build: _Build, path: str) -> Output:
    from delegraph.devtools.selective_build.package import zipapp

    contents = build.pack((Path(path).stem, _version()), embed=True)
    output = _written(path, "zipapp", zipapp(contents, build.bytecode))
    os.chmod(path, os.stat(path).st_mode | 0o111)
    return output


def _yaml(build: _Build, path: str) -> Output:
    from delegraph.devtools.selective_build.operator_yaml import operator_yaml

    return _written(path, "operator YAML", operator_yaml(build.needs).encode())


_Maker: TypeAlias = Callable[[_Build, str], "Output"]

_MAKERS: Final[dict[str, _Maker]] = {".pyz": _zipapp, ".whl": _wheel, ".yaml": _yaml}


def _maker(path: str) -> _Maker:
    maker = _MAKERS.get(Path(path).suffix)
    if maker is None:
        raise argparse.ArgumentError(None, f"-o {path}: the suffix says what is made: {', '.join(_MAKERS)}")
    return maker


def _written(path: str, kind: str, data: bytes) -> Output:
    from delegraph.devtools.selective_build.report import Output
    from delegraph.program.files.atomic_file import write_atomically

    write_atomically(path, [data])
    return Output(path, kind, len(data))


def _version() -> str:
    from delegraph.devtools.selective_build.distributions import Distributions
    from delegraph.plugins.discovery import HOST

    return Distributions().named(HOST).version


def _print(report: Report) -> None:
    from delegraph.tables import count, print_table

    for table in report.tables():
        print_table(table)
    if report.requirements:
        print(f"the machine has to have {', '.join(report.requirements)}")
    for output in report.outputs:
        print(f"{output.path}: {output.kind}, {count(output.nbytes)} bytes")
