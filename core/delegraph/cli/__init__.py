"""`delegraph lower | quantize | run | profile | inspect | diff | …`: modules with `add_parser` and `run(args) -> int`.

Only the module of the command that was named is imported, so that only `lower`, `quantize`, `compare`,
`debug` and `codegen` import torch.
Exit codes: 0 ok, 1 failed, 2 wrong usage; `diff` has its own. A command raises `argparse.ArgumentError` for wrong usage
that the parser could not see.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Final

from delegraph.errors import DelegraphError, torch_missing

__all__ = ["command_parser", "main"]

_COMMANDS: Final = (
    "lower",
    "quantize",
    "compare",
    "debug",
    "run",
    "map",
    "profile",
    "inspect",
    "diff",
    "view",
    "sign",
    "select",
    "bundle",
    "push",
    "codegen",
    "cache",
    "plugins",
    "doctor",
    "new",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Usage errors and `--help` exit, as argparse does."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a terminal that lacks a character is shown its code instead, as Python does for standard error
        sys.stdout.reconfigure(errors="backslashreplace")
    words = sys.argv[1:] if argv is None else list(argv)
    parser = command_parser(words[:1] if words and words[0] in _COMMANDS else _COMMANDS)
    args = parser.parse_args(words)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except argparse.ArgumentError as error:
        args.usage_error(str(error))
    except KeyboardInterrupt:
        if args.traceback:
            raise
        print(f"delegraph {args.command}: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read our output has seen enough; do not let the interpreter's exit flush again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (DelegraphError, OSError, ModuleNotFoundError) as error:
        known = error if isinstance(error, DelegraphError | OSError) else torch_missing("this command", error)
        if args.traceback or known is None:
            raise
        print(f"delegraph {args.command}: {_about(args, str(known))}", file=sys.stderr)
        return 1
    return code


def _about(args: argparse.Namespace, message: str) -> str:
    """`message`, after the name of the program's file unless it says that itself."""
    program: str | None = getattr(args, "program", None)
    return message if program is None or program in message else f"{program}: {message}"


def command_parser(commands: Iterable[str] = _COMMANDS) -> argparse.ArgumentParser:
    """The parser of the command line, with these commands of it."""
    parser = argparse.ArgumentParser(
        prog="delegraph", description="Lower PyTorch models onto installed backends; run the result without PyTorch."
    )
    parser.add_argument(
        "--version", action=_ShowVersion, nargs=0, help="say the versions of Delegraph and its plug-ins"
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar=" | ".join(_COMMANDS))
    for name in commands:
        import_module(f"delegraph.cli.{name}").add_parser(subparsers)
    for command in subparsers.choices.values():
        command.add_argument("--traceback", action="store_true", help="on errors, show where they came from")
        command.set_defaults(usage_error=command.error)
    return parser


class _ShowVersion(argparse.Action):
    """argparse's own "version" wants the text beforehand; reading the metadata takes a while that no command needs."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        from delegraph.plugins.installed import installed
        from delegraph.plugins.versions import PLUGIN_API, api_text

        print(f"delegraph {version('delegraph')}, plug-in API {api_text(PLUGIN_API)}")
        for plugin in installed():
            print(f"{plugin.distribution} {plugin.version}, needs plug-in API {api_text(plugin.api)}")
        parser.exit()
