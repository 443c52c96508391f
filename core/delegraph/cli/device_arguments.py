"""`--ssh 'ssh -p 2222' --python venv/bin/python`: how a command reaches a device, and the interpreter there."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delegraph.remote import Device

__all__ = ["add_arguments", "add_host", "device"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the ways to a device."""
    parser.add_argument(
        "--ssh",
        default="",
        metavar="COMMAND",
        help="ssh with its options: 'ssh -p 2222 -i key' (default: DELEGRAPH_SSH, or ssh, which reads ~/.ssh/config)",
    )
    parser.add_argument(
        "--python",
        default="",
        metavar="PATH",
        help="the interpreter on the device that has Delegraph (default: DELEGRAPH_PYTHON, or python3)",
    )


def add_host(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--host`, for `what`, and the ways to it."""
    parser.add_argument("--host", metavar="USER@BOARD", help=f"{what} on this device, over ssh, and not here")
    add_arguments(parser)


def device(args: argparse.Namespace, host: str) -> Device:
    """The device that is called `host`. Raises `DeviceError` for a name that is none."""
    from delegraph.remote import Device

    return Device(host, args.ssh, args.python)
