"""A program -> its torch code for people: the way in which a script has it, and what the script lowers then."""

from __future__ import annotations

import re
from dataclasses import dataclass
from textwrap import indent
from typing import Final

from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, Node

from delegraph.aot.graph.bodies import bodies

__all__ = ["Source", "sources"]


@dataclass(frozen=True, slots=True)
class Source:
    """Lines at the top of the script, and the arguments of `delegraph.lower` in it."""

    model: str
    lowered: str


def sources(program: ExportedProgram) -> list[Source]:
    """The ways in which a script can have `program`, called `PROGRAM` in it, the more readable first.

    As a module that people may change, if all of its code can stand in one; else as it was exported, with its code in
    comments, by which its dynamic shapes and its state are kept.
    """
    code, stands_alone = _code(program)
    module = Source(
        f"{_GLOBALS}\n\nclass Part(torch.nn.Module):\n{indent(_INIT + code, '    ')}", "Part(), ARGS, KWARGS"
    )
    loaded = Source("".join(f"# {line}".rstrip() + "\n" for line in code.splitlines()), "PROGRAM")
    return [module, loaded] if stands_alone else [loaded]


_GLOBALS: Final = "from math import inf, nan  # noqa: E402, F401\n\nfrom torch import device  # noqa: E402, F401\n"
_NAMES: Final = {"torch", "device", "inf", "nan", "NoneType", "pytree", "fx_pytree"}
"""Global names that torch gives to the code of each graph; the script has those that such code makes use of."""
_INIT: Final = """def __init__(self):
    super().__init__()
    for name, tensor in {**PROGRAM.state_dict, **PROGRAM.constants}.items():
        self.register_buffer(name.replace(".", "_"), tensor)

"""


def _code(program: ExportedProgram) -> tuple[str, bool]:
    """A method `forward` that reads weights from its module, each call below its line in the user's code; and whether
    it needs nothing that the script does not have."""
    constants = {
        spec.arg.name: str(spec.target).replace(".", "_")
        for spec in program.graph_signature.input_specs
        if spec.kind is not InputKind.USER_INPUT
    }
    graph, copies = Graph(), dict[Node, Node]()
    for node in program.graph.nodes:
        if node.name in constants:
            copies[node] = graph.create_node("get_attr", constants[node.name], name=node.name)
            copies[node].meta = dict(node.meta)
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    code = graph.python_code("self", verbose=True)
    stands_alone = not bodies(program.graph_module) and _NAMES.issuperset(code.globals)
    return re.sub(r"\n\s*\n+", "\n", code.src.strip()) + "\n", stands_alone
