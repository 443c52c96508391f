"""The command line's own parser -> the page of all commands, arguments and options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from delegraph.cli import command_parser

__all__ = ["cli_page"]

_HEAD = """# Command line

Generated from the commands' own parsers. Exit codes: 0 all went well, 1 it failed or found something, 2 wrong usage.
"""


def cli_page() -> str:
    """The page's Markdown: a section for each command, and for each command of a command."""
    parser = command_parser()
    return "\n".join([_HEAD, *_lines(parser, parser.description or "", "##")])


def _lines(parser: argparse.ArgumentParser, about: str, heading: str) -> Iterator[str]:
    yield f"{heading} {parser.prog}\n\n{_markdown(about)}\n\n```text\n{_usage(parser)}\n```\n"
    if rows := [_row(action) for action in parser._actions if _is_shown(action)]:
        yield "\n".join(["| argument | what it is |", "| --- | --- |", *rows, ""])
    if parser.epilog:
        yield f"{_markdown(parser.epilog)}\n"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                yield from _lines(command, helps.get(name, ""), f"{heading}#"[:3])


def _is_shown(action: argparse.Action) -> bool:
    return (
        not isinstance(action, argparse._HelpAction | argparse._SubParsersAction) and action.help != argparse.SUPPRESS
    )


def _row(action: argparse.Action) -> str:
    value = action.metavar or (",".join(map(str, action.choices)) if action.choices else action.dest.upper())
    words = [f"{option} {value}" if action.nargs != 0 else option for option in action.option_strings]
    shown = ", ".join(words or [str(action.metavar or action.dest)])
    text = (action.help or "") % {**vars(action), "prog": "delegraph"}
    note = " (required)" if action.required and action.option_strings else ""
    return f"| `{shown}` | {_markdown(text)}{note} |"


def _usage(parser: argparse.ArgumentParser) -> str:
    return parser.format_usage().removeprefix("usage: ").rstrip()


def _markdown(text: str) -> str:
    """A help text, whose stars and underscores mean themselves, on one line."""
    return re.sub(r"([*_<|])", r"\\\1", " ".join(text.split()))
