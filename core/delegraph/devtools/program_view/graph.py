"""A program and its model -> graphs, one for each method: nodes with modules, edges, shapes, places, partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from delegraph.devtools.program_model.rows import DelegateRow, MethodModel, NodeRow, ProgramModel, WeightRow
from delegraph.devtools.program_model.tables import short_operator, tensor_text
from delegraph.interfaces.description import DelegateNode, DescribedTensor
from delegraph.program.alternatives import methods_of
from delegraph.program.dtypes import dtype_info
from delegraph.program.kernel_calls import split_arguments
from delegraph.program.memory.accesses import access
from delegraph.program.memory.live_ranges import place_of, roots_of
from delegraph.program.schema import (
    DelegateCall,
    ExecutionPlan,
    Instruction,
    KernelCall,
    MoveCall,
    Program,
    Tensor,
    TensorShapeDynamism,
)

__all__ = ["GraphView", "ViewNode", "view_graphs"]


@dataclass(frozen=True, slots=True)
class ViewNode:
    """A step, an input or an output of a method.

    `id` is unique in the method: `3` for an instruction, `3/conv_1` for a step of the delegate that it calls. `module`
    is its place in the hierarchy, `blocks.0.conv`; `partition` an index of `GraphView.partitions`. `inputs` are ids of
    the nodes whose results it reads; `results` are texts, `float32 [1, 8]`, and `memory` says where they lie. `reason`
    tells why no backend took it, `weights` which it reads, and `weight_nbytes` their bytes in the file; a weight that
    several nodes read counts for the first. `row` is its row of the model, None for inputs and outputs.
    """

    id: str
    label: str
    operator: str
    module: str = ""
    partition: int = 0
    inputs: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    reason: str = ""
    weights: tuple[str, ...] = ()
    weight_nbytes: int = 0
    row: NodeRow | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class GraphView:
    """A method: its nodes in the order in which they run. `partitions` are what runs them: the inputs and outputs,
    kernels, and each delegate by its backend's name."""

    method: str
    nodes: tuple[ViewNode, ...]
    partitions: tuple[str, ...]


class _Places(TypedDict):
    """The texts of what a node gives."""

    results: tuple[str, ...]
    memory: tuple[str, ...]


OUTSIDE, KERNELS = "inputs and outputs", "kernels"


def view_graphs(program: Program, model: ProgramModel) -> tuple[GraphView, ...]:
    """The graphs of all methods. `model` is that of `program` (`devtools.load_model`)."""
    return tuple(_Builder(plan, rows).build() for plan, rows in zip(methods_of(program), model.methods, strict=True))


class _Builder:
    """Builds the graph of one method: follows its instructions, and remembers which nodes wrote a value last."""

    def __init__(self, plan: ExecutionPlan, rows: MethodModel) -> None:
        self.plan = plan
        self.roots = roots_of(plan).by_value
        self.writers: dict[int, tuple[str, ...]] = {}
        self.parts: dict[int, tuple[str, ...]] = {}
        """By the tensor whose memory is meant: all that wrote into it, for one that is put together of parts."""
        self.kernels = iter([row for row in rows.nodes if row.delegate is None])
        self.delegates = rows.delegates
        self.calls = {row.delegate: row for row in rows.calls}
        self.inside: dict[int, list[NodeRow]] = {}
        for row in rows.nodes:
            if row.delegate is not None:
                self.inside.setdefault(row.delegate, []).append(row)
        self.weights: dict[tuple[int | None, str], list[WeightRow]] = {}
        for weight in rows.weights:
            self.weights.setdefault((weight.delegate, weight.label), []).append(weight)
        self.counted: set[tuple[int | None, str]] = set()

    def build(self) -> GraphView:
        nodes = list(self._inputs())
        for chain_number, chain in enumerate(self.plan.chains):
            for number, instruction in enumerate(chain.instructions):
                place = f"{chain_number}.{number}" if chain_number else str(number)
                nodes += self._step(place, instruction)
        nodes += self._outputs()
        delegates = (f"delegate {row.index}: {row.backend}" for row in self.delegates)
        return GraphView(self.plan.name, tuple(nodes), (OUTSIDE, KERNELS, *delegates))

    def _inputs(self) -> Iterator[ViewNode]:
        for position, index in enumerate(self.plan.inputs):
            node = ViewNode(f"input {position}", f"input {position}", "input", **self._results([index]))
            self._wrote([index], node.id)
            yield node

    def _outputs(self) -> Iterator[ViewNode]:
        for position, index in enumerate(self.plan.outputs):
            name = f"output {position}"
            yield ViewNode(name, name, "output", inputs=self._sources([index]), **self._results([index]))

    # ---- instructions ----

    def _step(self, place: str, instruction: Instruction) -> Iterable[ViewNode]:
        if isinstance(instruction, KernelCall):
            return [self._kernel(place, next(self.kernels), instruction)]
        if isinstance(instruction, DelegateCall):
            return self._delegate(place, instruction)
        if isinstance(instruction, MoveCall):
            self.writers[instruction.move_to] = self._sources([instruction.move_from])
        return ()

    def _kernel(self, place: str, row: NodeRow, call: KernelCall) -> ViewNode:
        done = access(self.plan, call, lambda _: None)
        _, scalar = split_arguments(call.args, self.plan.values)
        writes = [*done.writes, *(index for index in (done.view, scalar) if index is not None)]
        scalars = [index for index in call.args if index not in writes and index in self.writers]
        node = self._node(place, row, 1, self._sources([*done.reads, *scalars]), self._results(writes))
        self._wrote(writes, node.id)
        return node

    def _delegate(self, place: str, call: DelegateCall) -> Iterator[ViewNode]:
        index = call.delegate_index
        row, rows = self.delegates[index], self.inside.pop(index, None)
        reads, writes = self._split(call, row)
        partition = 2 + index
        steps = {node.name: node for node in row.described.nodes} if row.described else {}
        if rows is None or (len(rows) == 1 and rows[0].name not in steps):  # called again, or one piece
            whole = (rows or [self.calls[index]])[0]
            node = self._node(place, whole, partition, self._sources(reads), self._results(writes))
            self._wrote(writes, node.id)
            yield node
            return
        yield from self._inside(place, rows, steps, partition, row, reads, writes)

    def _inside(
        self,
        place: str,
        rows: Sequence[NodeRow],
        steps: Mapping[str, DelegateNode],
        partition: int,
        delegate: DelegateRow,
        reads: Sequence[int],
        writes: Sequence[int],
    ) -> Iterator[ViewNode]:
        """The nodes of a delegate; its inputs and outputs are the call's, in their order. A device's commands say no
        values: these nodes are linked in the order in which they run."""
        assert delegate.described is not None
        told = delegate.described
        made = {t.name: self._sources([index]) for t, index in zip(told.inputs, reads, strict=False)}
        values = {*made, *(t.name for step in steps.values() for t in step.outputs), *steps}
        is_linked = any(name in values for step in steps.values() for name in step.inputs)
        before = self._sources(reads)
        for row in rows:
            step = steps[row.name]
            sources = tuple(dict.fromkeys(source for name in step.inputs for source in made.get(name, ())))
            sources = sources if is_linked else before
            results = tuple(map(_described, step.outputs)) if any(t.dtype for t in step.outputs) else row.origin.results
            named = dict(zip((t.name for t in told.outputs), writes, strict=False))
            outside = [named[t.name] for t in step.outputs if t.name in named]
            places = self._results(outside)
            shown = _Places(results=places["results"] or results, memory=places["memory"])
            node = self._node(f"{place}/{row.name}", row, partition, sources, shown)
            before = (node.id,)
            made.update(dict.fromkeys([t.name for t in step.outputs] or [step.name], (node.id,)))
            yield node
        last = f"{place}/{rows[-1].name}"
        for position, index in enumerate(writes):
            name = told.outputs[position].name if position < len(told.outputs) else ""
            self._wrote([index], *made.get(name, (last,)))

    def _split(self, call: DelegateCall, row: DelegateRow) -> tuple[Sequence[int], Sequence[int]]:
        """The values that a delegate reads, and those that it writes: its last ones, as many as it has outputs, or as
        nobody has written before."""
        count = len(row.described.outputs) if row.described else 0
        if not 0 < count <= len(call.args):
            known = (i for i, index in enumerate(reversed(call.args)) if i and self._is_known(index))
            count = next(known, len(call.args))
        first = len(call.args) - count
        return call.args[:first], call.args[first:]

    def _is_known(self, index: int) -> bool:
        value = self.plan.values[index]
        return index in self.writers or not isinstance(value, Tensor) or bool(value.data_buffer_idx)

    # ---- values ----

    def _sources(self, indices: Iterable[int]) -> tuple[str, ...]:
        """The nodes that wrote these values, or the memory that they show."""
        nodes: dict[str, None] = {}
        for index in indices:
            root = self.roots.get(index, index)
            nodes |= dict.fromkeys(self.writers.get(index) or self.writers.get(root) or self.parts.get(root, ()))
        return tuple(nodes)

    def _wrote(self, indices: Iterable[int], *nodes: str) -> None:
        for index in indices:
            self.writers[index] = nodes
            root = self.roots.get(index, index)
            if root != index:
                self.writers.pop(root, None)
                self.parts[root] = tuple(dict.fromkeys((*self.parts.get(root, ()), *nodes)))

    def _results(self, indices: Iterable[int]) -> _Places:
        tensors = [
            (value, place_of(value)) for index in indices if isinstance(value := self.plan.values[index], Tensor)
        ]
        return {
            "results": tuple(_tensor(tensor) for tensor, _ in tensors),
            "memory": tuple(
                f"planned memory {place[0]}, bytes {place[1]:,} to {place[2]:,}" if place else "the caller's"
                for _, place in tensors
            ),
        }

    def _node(self, id: str, row: NodeRow, partition: int, inputs: tuple[str, ...], places: _Places) -> ViewNode:
        texts, size = [], 0
        for name in row.reads:
            for weight in self.weights.get((row.delegate, name), ()):
                texts.append(
                    f"{name}: {tensor_text(weight.dtype, weight.shape)}, {weight.nbytes:,} bytes in {weight.place}"
                )
                size += 0 if (row.delegate, name) in self.counted else weight.nbytes
            self.counted.add((row.delegate, name))
        return ViewNode(
            id,
            short_operator(row.operator),
            row.operator,
            row.origin.module,
            partition,
            inputs,
            places["results"] or row.origin.results,
            places["memory"],
            row.origin.lines,
            row.reason,
            tuple(texts),
            size,
            row,
        )


def _tensor(tensor: Tensor) -> str:
    most = "" if tensor.shape_dynamism is TensorShapeDynamism.STATIC else "up to "
    return f"{dtype_info(tensor.scalar_type).name} {most}[{', '.join(map(str, tensor.sizes))}]"


def _described(tensor: DescribedTensor) -> str:
    shape = "" if tensor.shape is None else f" [{', '.join(map(str, tensor.shape))}]"
    return f"{tensor.dtype}{shape}"
