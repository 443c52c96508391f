"""`delegraph sign m.pte --key key.pem`: sign programs and external weights, so that `--trusted-key` loads them."""

from __future__ import annotations

import argparse

__all__ = ["add_parser", "run"]

_EPILOG = """\
Keys are Ed25519, in PEM files:
  openssl genpkey -algorithm ed25519 -out key.pem       the private key, which signs: keep it to yourself
  openssl pkey -in key.pem -pubout -out public.pem      the public key: for `delegraph run --trusted-key public.pem`
Needs cryptography: pip install 'cryptography>=42'.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `sign` to the command line."""
    parser = subparsers.add_parser(
        "sign",
        help="sign a program, and its external weights",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", metavar="m.pte|m.ptd", help="each is signed in place, or left as it is")
    parser.add_argument("--key", required=True, metavar="key.pem", help="the private key")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what `args` say; returns the exit code."""
    from delegraph.program.signatures import sign_file

    for path in args.files:
        print(f"{path}: signed with key {sign_file(path, args.key)}")
    return 0
