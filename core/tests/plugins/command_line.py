"""`delegraph plugins …` in this process, without the rest of the command line."""

from __future__ import annotations

import argparse

from delegraph.cli import plugins


def run(*words: str) -> int:
    """The exit code of `delegraph plugins` with these words."""
    parser = argparse.ArgumentParser(prog="delegraph")
    plugins.add_parser(parser.add_subparsers(required=True))
    args = parser.parse_args(["plugins", *words])
    code: int = args.run(args)
    return code
