"""A program that shows something -> a smaller one that shows it, too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.programs.program import DYNAMIC, SIZES, Program

__all__ = ["shrunk"]

Shows = Callable[[Program], bool]
TRIES = 120
"""Of smaller programs."""


def shrunk(program: Program, shows: Shows) -> Program:
    """The smallest program that `shows` says yes to, on the way of one change after another."""
    tries, smaller = TRIES, True
    while smaller and tries:
        smaller = False
        for candidate in _smaller(program):
            tries -= 1
            if shows(candidate):
                program, smaller = candidate, True
                break
            if not tries:
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    """Programs with fewer results, fewer calls, inputs in the place of values, fixed sizes; the boldest first."""
    if len(program.outputs) > 1:
        yield from (replace(program, outputs=(name,)) for name in program.outputs)
    for index in reversed(range(len(program.calls))):
        yield from _without(program, index)
    if program.dynamic:
        fixed = (tuple(SIZES[0] if dim == DYNAMIC else dim for dim in value.shape) for value in program.inputs)
        inputs = tuple(replace(v, shape=s) for v, s in zip(program.inputs, fixed, strict=True))
        yield replace(program, inputs=inputs)
    unused = [value for value in program.inputs if not any(value.name in call.uses for call in program.calls)]
    for value in unused if len(program.inputs) > 1 else ():
        if value.name not in program.outputs:
            yield replace(program, inputs=tuple(each for each in program.inputs if each != value))


def _without(program: Program, index: int) -> Iterator[Program]:
    """Without a call and what needs it; or with a value that the call reads in the place of its own."""
    gone = program.calls[index]
    before, behind = program.calls[:index], program.calls[index + 1 :]
    names, rest = {gone.makes} | _states(gone.state), []
    for call in behind:
        if call.uses & names:
            names |= {call.makes} | _states(call.state)
        else:
            rest.append(call)
    outputs = tuple(name for name in program.outputs if name not in names)
    if outputs:
        yield replace(program, calls=(*before, *rest), outputs=outputs)
    if not gone.makes:
        return
    for name in sorted(use for use in gone.uses if not use.startswith("s")):
        calls = tuple(replace(call, text=re.sub(rf"\b{gone.makes}\b", name, call.text)) for call in behind)
        outputs = tuple(dict.fromkeys(name if output == gone.makes else output for output in program.outputs))
        yield replace(program, calls=(*before, *calls), outputs=outputs)


def _states(state: str) -> set[str]:
    return set(re.findall(r"\bs\d+\b", state))
