"""`delegraph bundle m.pte --platform TAG --python 3.11 -o DIR`: what a machine without a network needs."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from delegraph.cli import data_files, kernel_order

__all__ = ["add_parser", "run"]

_EPILOG = """\
DIR gets the programs, the wheels that run them on that machine, and install.sh, which installs them there without a
network and loads the programs. What is installed here decides which distributions these are, and in which versions.
pip fetches them; those that it finds in no index are made of what is installed here.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `bundle` to the command line."""
    parser = subparsers.add_parser(
        "bundle", help="gather what programs need on a machine without a network", epilog=_EPILOG
    )
    parser.add_argument("programs", metavar="m.pte", nargs="+", help="the programs")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="a new folder")
    parser.add_argument(
        "--platform",
        required=True,
        type=_platform,
        metavar="TAG",
        help="the machine, as wheels name it: manylinux_2_28_aarch64, linux_armv7l, macosx_14_0_arm64, win_amd64;"
        " of manylinux the version of its glibc (ldd --version), older wheels are taken too",
    )
    parser.add_argument("--python", required=True, type=_version, metavar="3.11", help="the version of its Python")
    data_files.add_argument(parser)
    kernel_order.add_argument(parser)
    parser.add_argument(
        "--find-links", action="append", default=[], metavar="DIR", help="a folder of wheels, looked into first"
    )
    parser.add_argument(
        "--require", action="append", default=[], metavar="REQ", help="something else to install: 'delegraph[cli]'"
    )
    parser.add_argument("--no-index", action="store_true", help="take wheels from --find-links alone")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


_PLATFORMS = r"(manylinux|musllinux|linux|macosx|win|android|ios|any$)[a-z0-9_]*"
"""Platforms as wheels name them (PyPA, "Platform compatibility tags")."""


def _platform(text: str) -> str:
    if not re.fullmatch(_PLATFORMS, text):
        raise argparse.ArgumentTypeError(f"{text!r} is no platform as wheels name it, such as manylinux_2_28_aarch64")
    return text


def _version(text: str) -> str:
    if not re.fullmatch(r"\d+\.\d+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no version of Python, such as 3.11")
    return text


def run(args: argparse.Namespace) -> int:
    """Do what `args` say; returns the exit code."""
    from delegraph.devtools.offline_bundle.bundle import Target, bundle

    written = bundle(
        [Path(path) for path in args.programs],
        [Path(path) for path in args.data or ()],
        Path(args.output),
        Target(args.platform, args.python),
        kernel_order.kernel_order(args.kernels),
        args.find_links,
        args.require,
        ["--no-index"] if args.no_index else [],
    )
    if args.json:
        print(json.dumps(written.to_json(), indent=2))
        return 0
    for sentence in written.checked:
        print(sentence)
    print(f"{args.output}: copy it to the machine, and there: sh {Path(args.output).name}/install.sh")
    return 0
