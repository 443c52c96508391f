"""Tagged edge program -> the program with each tag cut out and a call of a delegate, still without blob, in its place.

    before                           after                                  the delegate's own program
    y = linear(x, w)       [tag]     s = sin(x)                             inputs: w (its own), x, k
    s = sin(x)                       d = call_delegate(lowered, x, k)       y = linear(x, w)
    z = y * k              [tag]     z = d[0]                               z = y * k
    return z, s                      return z, s                            return z

A weight with the tag belongs to the delegate and leaves the program, unless something else reads it; everything else
that is read from outside is an argument of the call. Values that are read outside of the partition are its results:
tensors alone, since a backend cannot fill a number (`_compute_outside`). A buffer that the partition alone reads and
changes is the delegate's state, and its new value is not an output of the graph any more:

    before                           after                                  the delegate's own program
    n = cache + x          [tag]     d = call_delegate(lowered, x)          inputs: cache (its own), x
    y = n * 2              [tag]     y = d[0]                               n = cache + x;  y = n * 2
    return n (cache'), y             return y                               return n (cache'), y

A lowered program still runs in eager mode: a delegate call runs the program that was cut out.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec
from torch.fx import GraphModule, Node
from torch.fx.node import Argument

from delegraph.aot.delegation.lowered_module import LoweredBackendModule, call_delegate, lowered_modules
from delegraph.aot.delegation.part import part_of
from delegraph.aot.delegation.partition import TAG, Partitioned, Subgraph, clear_tags, owned_buffers
from delegraph.aot.graph.bodies import attributes, graph_modules
from delegraph.aot.graph.debug_handles import highest_handle
from delegraph.aot.graph.edit import rebuild
from delegraph.aot.graph.scalars import is_scalar
from delegraph.aot.graph.source_location import user_location
from delegraph.errors import InvalidPartition
from delegraph.interfaces.lowering import DelegationSpec

__all__ = ["CutPartition", "call_names", "cut_out"]


@dataclass(frozen=True, slots=True)
class CutPartition:
    """One partition of a method, cut out: its delegate, who took its nodes, and which (names as before the cut).

    `path` is the control-flow body in which it is called, "" for the method's own graph.
    """

    lowered_module: LoweredBackendModule
    partitioner: str
    nodes: tuple[str, ...]
    path: str = ""


# ---- cutting ---------------------------------------------------------------------------------------


def cut_out(partitioned: Partitioned) -> tuple[ExportedProgram, list[CutPartition]]:
    """Replace every tag by a delegate call, its blob still empty. Edits the partitioned program's graphs in place."""
    program = partitioned.program
    if not partitioned.tags:
        return program, []
    delegates: list[CutPartition] = []
    debug_handles = _unused_debug_handles(program)
    for path, module in graph_modules(program.graph_module):
        subgraphs = partitioned.order.get(path, ())
        if any(subgraph.tag for subgraph in subgraphs):
            cutter = _Cutter(program, module, partitioned.tags, debug_handles, top=path == "")
            lowered = cutter.cut(subgraphs)
            delegates += [CutPartition(m, partitioned.partitioner, nodes, path) for m, nodes in lowered]
            if path == "":
                output_specs = cutter.remaining_outputs()
                dropped = cutter.drop_owned_constants()
            else:
                module.recompile()
    clear_tags(program)
    if any(delegate.path == "" for delegate in delegates):
        program = _without(rebuild(program, attributes(program.graph_module), program.graph, output_specs), dropped)
    return program, delegates


def _unused_debug_handles(program: ExportedProgram) -> Iterator[int]:
    """Handles for the delegate calls: the next after those of the program's nodes, and of what was cut out before."""
    known = [highest_handle(program.graph_module)]
    known += [handle for module in lowered_modules(program.graph_module) for handle in module.debug_handles]
    return count(max(known) + 1)


def call_names(nodes: Iterable[Node]) -> tuple[str, ...]:
    """The names of what counts as a node in reports: calls, elements of tuples apart."""
    return tuple(node.name for node in nodes if node.target is not operator.getitem)


def _without(program: ExportedProgram, names: Iterable[str]) -> ExportedProgram:
    """`program` after its state and constants of these names, which no placeholder refers to, are gone."""
    for name in names:
        program.state_dict.pop(name, None)
        program.constants.pop(name, None)
    return program


class _Cutter:
    """Cuts the tags out of one graph: the method's own (`top`), or a control-flow body."""

    def __init__(
        self,
        program: ExportedProgram,
        module: GraphModule,
        tags: Mapping[str, DelegationSpec],
        debug_handles: Iterator[int],
        top: bool,
    ) -> None:
        self.program = program
        self.debug_handles = debug_handles
        self.module = module
        self.graph = module.graph
        self.tags = tags
        self.output = module.graph.output_node()
        signature = program.graph_signature
        self.inputs = {spec.arg.name: spec for spec in signature.input_specs} if top else {}
        self.state = owned_buffers(program) if top else {}
        self.owned: dict[Node, None] = {}
        self.mutations: dict[Node, list[OutputSpec]] = {}
        self.kept_outputs: list[tuple[Argument, OutputSpec | None]] = []
        self._split_outputs(signature.output_specs if top else None)
        self._numbers = (n for n in count() if not hasattr(module, f"lowered_module_{n}"))

    def _split_outputs(self, specs: Sequence[OutputSpec] | None) -> None:
        """Tell the new values of buffers that delegates own from the outputs that the graph keeps."""
        kept_by_delegates = {self.inputs[node.name].target for node in self.state if TAG in node.meta}
        values = self.output.args[0]
        values = values if isinstance(values, (tuple, list)) else (values,)
        for value, spec in zip(values, specs or (None,) * len(values), strict=True):
            if spec is not None and spec.kind is OutputKind.BUFFER_MUTATION and spec.target in kept_by_delegates:
                assert isinstance(value, Node)
                self.mutations.setdefault(value, []).append(spec)
            else:
                self.kept_outputs.append((value, spec))
        if self.mutations:  # a delegate writes those itself: behind it the graph has no new value to give
            self.output.args = (tuple(value for value, _ in self.kept_outputs),)

    def cut(self, subgraphs: Iterable[Subgraph]) -> list[tuple[LoweredBackendModule, tuple[str, ...]]]:
        """Bring the calls into the order of `subgraphs`, with a delegate call for each subgraph that has a tag."""
        delegates = []
        for subgraph in subgraphs:
            if subgraph.tag is None:  # moving each call to the end, in turn, brings all into the order
                self.output.prepend(subgraph.nodes[0])
            else:
                names = call_names(subgraph.nodes)
                lowered = self._delegate(subgraph.tag, subgraph.nodes)
                if lowered is not None:
                    delegates.append((lowered, names))
        return delegates

    def _delegate(self, tag: str, nodes: tuple[Node, ...]) -> LoweredBackendModule | None:
        inside = set(nodes)
        # a number is no output of a delegate, but the tensors that it is read from have to be
        read = [node for node in nodes if any(user not in inside for user in node.users)]
        numbers = _needed_outside([node for node in read if is_scalar(node)], inside)
        needed = {source for number in numbers for source in number.all_input_nodes}
        outputs = [node for node in nodes if not is_scalar(node) and (node in read or node in needed)]
        if not outputs and not any(node in self.mutations for node in nodes):  # one that only keeps state is of use
            self._leave_outside(nodes)
            return None
        part, arguments = self._extract(nodes, outputs)
        spec = self.tags[tag]
        lowered = LoweredBackendModule.without_blob(part, spec, tag)
        elements = self._splice(lowered, arguments, outputs, inside)
        self._compute_outside(numbers, elements, inside)  # before the originals go, from which they are copied
        references = [read for node in nodes for read in node.all_input_nodes if read.op == "get_attr"]
        for node in (*reversed(nodes), *dict.fromkeys(references)):  # users before what they read
            if node.op != "get_attr" or not node.users:
                self.graph.erase_node(node)
        return lowered

    def _leave_outside(self, nodes: tuple[Node, ...]) -> None:
        """A partition that gives nothing but numbers does not become a delegate."""
        for node in nodes:
            self.output.prepend(node)

    def _compute_outside(self, numbers: Iterable[Node], elements: Mapping[Node, Node], inside: set[Node]) -> None:
        """Compute `numbers` once more behind the call of the partition: a backend fills tensors, it gives no numbers.

        before, all in one partition             after
            c = convolution(x)                       c = delegate(x)      (computes n for itself as well)
            n = sym_size(c, 2)                       n = sym_size(c, 2)
            v = view(c, [n])    -> n, v              …
        """
        copies = dict(elements)
        with self.graph.inserting_before(self.output):
            for number in numbers:
                copy = self.graph.node_copy(number, lambda node: copies.get(node, node))  # of the call's results
                copy.meta.pop(TAG, None)
                copies[number] = copy
                number.replace_all_uses_with(copy, delete_user_cb=lambda user: user not in inside)

    def _splice(
        self, lowered: LoweredBackendModule, arguments: list[Node], outputs: list[Node], inside: set[Node]
    ) -> dict[Node, Node]:
        """Put the call where the partition was; its elements, by the node whose value they have."""
        name = f"lowered_module_{next(self._numbers)}"
        self.module.register_module(name, lowered)
        with self.graph.inserting_before(self.output):
            reference = self.graph.create_node("get_attr", name)
            call = self.graph.call_function(call_delegate, (reference, *arguments))
            call.meta = {"val": tuple(node.meta["val"] for node in outputs), "debug_handle": next(self.debug_handles)}
            elements = {}
            for i, node in enumerate(outputs):
                element = elements[node] = self.graph.call_function(operator.getitem, (call, i))
                element.meta = {key: value for key, value in node.meta.items() if key != TAG}
                node.replace_all_uses_with(element, delete_user_cb=lambda user: user not in inside)
        return elements

    # ---- one partition's own program -------------------------------------------------------------------

    def _extract(self, nodes: tuple[Node, ...], outputs: list[Node]) -> tuple[ExportedProgram, list[Node]]:
        """The partition as a program, and the values of this graph that its user inputs stand for."""
        mutations = [(node, spec) for node in nodes for spec in self.mutations.get(node, ())]
        part = part_of(self.program, self.module, nodes, outputs, self._is_owned, mutations)
        self.owned.update(dict.fromkeys(part.constants))
        clear_tags(part.program)
        return part.program, part.arguments

    def _is_owned(self, node: Node) -> bool:
        """Tagged constants are owned by every partition that reads them; with `no_copy`, by a sole one or by none."""
        if node.op != "placeholder" or TAG not in node.meta:
            return False
        return not node.meta.get("no_copy") or len({user.meta.get(TAG) for user in node.users}) == 1

    # ---- what is left ----------------------------------------------------------------------------------

    def remaining_outputs(self) -> list[OutputSpec]:
        """The signature of the outputs that the graph keeps."""
        return [spec for _, spec in self.kept_outputs if spec is not None]

    def drop_owned_constants(self) -> list[str]:
        """Remove the placeholders that only delegates read; the names of what they held."""
        dropped = [node for node in self.owned if not node.users]
        for node in dropped:
            self.graph.erase_node(node)
        names = [self.inputs[node.name].target for node in dropped]
        # another placeholder may name the same tensor (a tied weight): it stays for that one
        still_read = {self.inputs[n.name].target for n in self.graph.find_nodes(op="placeholder")}
        return [name for name in names if name is not None and name not in still_read]


def _needed_outside(numbers: Iterable[Node], inside: set[Node]) -> list[Node]:
    """`numbers` and the numbers of the partition that they are computed from, each behind those that it reads."""
    needed: dict[Node, None] = {}

    def visit(number: Node) -> None:
        for source in number.all_input_nodes:
            if source in inside and source not in needed:
                if is_scalar(source):
                    visit(source)
                elif not isinstance(source.meta.get("val"), torch.Tensor):
                    raise InvalidPartition(
                        f"{source.name} gives numbers among its results, and {number.name} is read outside of the"
                        " partition: a backend fills tensors, it cannot give a number; the partitioner leaves the call",
                        node=source.name,
                        location=user_location(source),
                    )
        needed[number] = None

    for number in numbers:
        visit(number)
    return list(needed)
