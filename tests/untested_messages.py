"""The errors of every distribution -> those whose message stands in no test: `python -m tests.untested_messages`.

A message stands in a test if a string there has `WORDS` of its words in a row, or all of a piece that is shorter. What
is computed is not looked at: `f"{name} is not there"` has the piece "is not there". Pieces of a word say too little.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

from tools.distributions import DISTRIBUTIONS, ROOT, Distribution

import delegraph.errors

__all__ = ["Message", "messages", "untested"]

WORDS = 3
ERRORS = {
    name for name, kind in vars(delegraph.errors).items() if isinstance(kind, type) and issubclass(kind, Exception)
}


@dataclass(frozen=True, slots=True)
class Message:
    """An error that is made at `line` of `path`, below the repository; `pieces` are its message's literal text."""

    path: str
    line: int
    error: str
    pieces: tuple[str, ...]


def messages(distribution: Distribution) -> list[Message]:
    """The errors that a distribution makes with a message, in the order of files and lines; not those of templates."""
    files = [path for path in sorted(distribution.package.rglob("*.py")) if "templates" not in path.parts]
    return [message for path in files for message in _of_file(path)]


def _of_file(path: Path) -> Iterator[Message]:
    """What is raised, by whatever makes the error, and errors that are handed on."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    raised = {node.exc for node in nodes if isinstance(node, ast.Raise)}
    for node in nodes:
        if isinstance(node, ast.Call) and (node in raised or _name(node) in ERRORS):
            pieces = [piece for argument in node.args for piece in _pieces(argument)]
            if sayings := tuple(piece for piece in pieces if len(_words(piece)) > 1):
                yield Message(path.relative_to(ROOT).as_posix(), node.lineno, _name(node), sayings)


def _name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _pieces(node: ast.expr) -> Iterator[str]:
    """The literal text of an expression for a string, cut where something is computed."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=values):
            for literal, run in groupby(values, lambda part: isinstance(part, ast.Constant)):
                if literal:
                    yield "".join(part.value for part in run if isinstance(part, ast.Constant))
        case ast.BinOp(left=left, right=right):
            yield from _pieces(left)
            yield from _pieces(right)
        case ast.IfExp(body=body, orelse=orelse):
            yield from _pieces(body)
            yield from _pieces(orelse)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.replace("\\", " "))


@cache
def _tested() -> frozenset[tuple[str, ...]]:
    """Every run of up to `WORDS` words in a string of a test, of any distribution."""
    folders = [ROOT / "tests", *ROOT.glob("*/tests"), *ROOT.glob("*/*/tests")]
    runs: set[tuple[str, ...]] = set()
    for path in (path for folder in folders for path in folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for text in _pieces(node) if isinstance(node, ast.Constant | ast.JoinedStr) else ():
                words = _words(text)
                runs |= {tuple(words[i : i + n]) for n in range(1, WORDS + 1) for i in range(len(words) - n + 1)}
    return frozenset(runs)


@cache
def untested(distribution: Distribution) -> list[Message]:
    """Those of its `messages` that stand in no test, of any distribution."""
    return [message for message in messages(distribution) if not any(map(_stands, message.pieces))]


def _stands(piece: str) -> bool:
    words = _words(piece)
    n = min(WORDS, len(words))
    return any(tuple(words[i : i + n]) in _tested() for i in range(len(words) - n + 1))


if __name__ == "__main__":
    for each in DISTRIBUTIONS:
        for message in untested(each):
            print(f"{message.path}:{message.line}: {message.error}: {' … '.join(message.pieces)}")
        print(f"{each.name}: {len(untested(each))} of {len(messages(each))} messages stand in no test")
