"""`delegraph push m.pte user@board:models/`: put a program on a device that can run it; the one before it is kept."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import asdict
from pathlib import Path

from delegraph.cli import data_files, device_arguments

__all__ = ["add_parser", "run"]

_EPILOG = """\
Python, Delegraph and the backends there are looked at first, then what `delegraph doctor` there says of the file; it
gets its name in one step. The file before it stays there as m.pte.previous. Exit codes: 0, it is there; 1, it is not,
and the file that was there is as it was; 2, the command line is wrong.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `push` to the command line."""
    parser = subparsers.add_parser("push", help="put a program on a device that can run it, over ssh", epilog=_EPILOG)
    parser.add_argument("program", metavar="m.pte", help="the program; with --rollback its name there")
    parser.add_argument("target", metavar="USER@BOARD:PATH", help="a folder that is there or ends with /, or a file")
    data_files.add_argument(parser)
    parser.add_argument("--rollback", action="store_true", help="bring back the file that the last push replaced")
    parser.add_argument("--anyway", action="store_true", help="whatever doctor finds there: the file is for later")
    device_arguments.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what `args` say; returns the exit code."""
    from delegraph.remote import push, rollback

    host, path = _parts(args.target)
    device, data = device_arguments.device(args, host), [Path(file) for file in args.data or ()]
    if args.rollback:
        targets = rollback(device, [Path(args.program).name, *(file.name for file in data)], path)
        print(json.dumps({"targets": targets}) if args.json else f"{host}: {', '.join(targets)} is the one before")
        return 0
    pushed = push(device, Path(args.program), data, path, args.anyway)
    if args.json:
        print(json.dumps(asdict(pushed), indent=2))
        return 0
    print(", ".join(f"{name} {version}" for name, version in pushed.versions.items()))
    for warning in pushed.warnings:
        print(warning)
    for target in pushed.targets:
        state = "is there now" if target in pushed.changed else "was there already"
        print(f"{host}:{target} {state}")
    return 0


def _parts(target: str) -> tuple[str, str]:
    """Host and path. Raises `argparse.ArgumentError` for text without a colon."""
    parts = re.fullmatch(r"(?:(?P<user>[^@:]+@)?\[(?P<ip>[^\]]+)\]|(?P<host>[^:]+)):(?P<path>.*)", target, re.DOTALL)
    if parts is None:
        raise argparse.ArgumentError(None, f"{target}: write a host and a path, as in user@board:models/")
    return parts["host"] or f"{parts['user'] or ''}{parts['ip']}", parts["path"]
