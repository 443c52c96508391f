"""ExportedProgram -> its signature resolved to nodes and tensors, once, for whoever asks which placeholder is what.

torch writes a signature in names: an input spec says that `p_weight` is the parameter `weight`, an output spec that
output 0 is the new value of the buffer `cache`. Here it is in nodes and tensors:

    def forward(p_weight, b_cache, x):                     constants    {p_weight: HeldTensor("weight", …)}
        add = b_cache + x                                  states       {b_cache: HeldTensor("cache", …)}
        mul = add * p_weight                               inputs       (x,)
        return add, mul    # BUFFER_MUTATION, USER_OUTPUT  write_backs  (b_cache <- add,)   outputs (mul,)

A training step, torch's joint graph of a model and its gradients, has the weights that it computes a gradient of as
states: no run changes them, but between two runs an optimizer does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind
from torch.fx import Graph, Node

from delegraph.aot.graph.bodies import graph_modules, output_values
from delegraph.aot.torch_internals import executorch_call_delegate as call_delegate
from delegraph.errors import LoweringError

__all__ = ["SHARED_STATE", "HeldTensor", "MethodGraph", "ResolvedSignature", "WriteBack", "live_nodes"]

SHARED_STATE: Final = "shared_state"
"""The key in a placeholder's `meta` that makes its buffer a state: another method changes it, and they share it."""


@dataclass(frozen=True, slots=True)
class HeldTensor:
    """A tensor that a program brings with it: a parameter, a buffer or a lifted constant, by its qualified name."""

    name: str
    tensor: torch.Tensor
    kind: InputKind
    is_persistent: bool = True
    """Whether a model's `state_dict` has it; some buffers are made by its code"""

    @property
    def is_lifted(self) -> bool:
        """Whether it is a constant that the model's code has in it."""
        return self.kind is InputKind.CONSTANT_TENSOR


@dataclass(frozen=True, slots=True)
class WriteBack:
    """At the end of a run, `target` (a state's or an input's placeholder) takes the value of `source`."""

    target: Node
    source: Node


@dataclass(frozen=True, slots=True)
class ResolvedSignature:
    """The placeholders and outputs of a program, by what they stand for.

    `constants` are the tensors that no run changes, `states` those that the program gives a new value, `inputs` the
    caller's; `others` what is not a tensor (tokens, script objects). `outputs` are the caller's, flat: nodes and plain
    values. A state whose new value is its old one has no write-back. `trained` are the states that an optimizer
    changes, in the order in which the outputs have their gradients.
    """

    inputs: tuple[Node, ...]
    constants: Mapping[Node, HeldTensor]
    states: Mapping[Node, HeldTensor]
    others: Mapping[Node, InputSpec]
    outputs: tuple[Any, ...]
    write_backs: tuple[WriteBack, ...]
    trained: tuple[Node, ...] = ()

    @classmethod
    def of(cls, program: ExportedProgram) -> ResolvedSignature:
        """Resolve the signature of `program`, in any dialect; a partition's too."""
        placeholders = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
        signature, results = program.graph_signature, output_values(program.graph)
        changed = _changed_placeholders(program, placeholders)
        trained = _trained_placeholders(program, placeholders)
        inputs: list[Node] = []
        constants: dict[Node, HeldTensor] = {}
        states: dict[Node, HeldTensor] = {}
        others: dict[Node, InputSpec] = {}
        for spec in signature.input_specs:
            node = placeholders.get(spec.arg.name)
            if node is None:
                continue
            if spec.kind is InputKind.USER_INPUT:
                inputs.append(node)
            elif not isinstance(tensor := _held(program, spec), torch.Tensor):
                others[node] = spec
            else:
                is_state = node in changed.values() or node in trained or SHARED_STATE in node.meta
                (states if is_state else constants)[node] = HeldTensor(
                    str(spec.target), tensor, spec.kind, spec.persistent is not False
                )
        outputs = [
            result
            for spec, result in zip(signature.output_specs, results, strict=True)
            if spec.kind in _RETURNED or (spec.kind is OutputKind.TOKEN and result in trained)
        ]
        write_backs = [WriteBack(node, results[i]) for i, node in changed.items() if results[i] is not node]
        return cls(tuple(inputs), constants, states, others, tuple(outputs), tuple(write_backs), trained)

    @property
    def gives_weights_back(self) -> bool:
        """Whether the weights that are trained are the last of the outputs."""
        return bool(self.trained) and self.outputs[-len(self.trained) :] == self.trained

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        """The tensors that the program brings with it, states included: placeholder's name -> tensor."""
        return {node.name: stored.tensor for node, stored in (*self.constants.items(), *self.states.items())}

    @property
    def results(self) -> list[Any]:
        """The values that a run has to compute: the outputs, then the sources of the write-backs."""
        return [*self.outputs, *(write_back.source for write_back in self.write_backs)]


@dataclass(frozen=True, slots=True)
class MethodGraph:
    """One method with its signature: read by emission and its checks, never edited."""

    name: str
    program: ExportedProgram
    signature: ResolvedSignature

    @classmethod
    def of_program(cls, name: str, program: ExportedProgram) -> MethodGraph:
        """Resolve the signature of `program`. Raises `LoweringError` for an input that no program file can hold."""
        signature = ResolvedSignature.of(program)
        for node, spec in signature.others.items():
            if spec.kind is not InputKind.TOKEN:
                raise LoweringError(
                    f"method {name!r}: {spec.kind.name.lower()} {str(spec.target)!r} is"
                    f" {type(_held(program, spec)).__name__}, not a tensor; a program file holds tensors and plain"
                    " numbers only",
                    node=node.name,
                )
        return cls(name, program, signature)

    def calls(self) -> list[Node]:
        """The operator calls that the outputs and write-backs need, those in the bodies of control flow included."""
        calls: list[Node] = []
        for path, module in graph_modules(self.program.graph_module):
            graph = module.graph
            live = live_nodes(graph, output_values(graph) if path else self.signature.results)
            calls += (n for n in graph.nodes if n in live and n.op == "call_function")
        return calls


def live_nodes(graph: Graph, roots: Iterable[object]) -> set[Node]:
    """The nodes that `roots` need, and those that act on memory."""
    live: set[Node] = {node for node in roots if isinstance(node, Node)}
    for node in reversed(graph.nodes):
        if node in live or _acts(node):
            live.add(node)
            if node.op == "call_function":
                live.update(node.all_input_nodes)
    return live


def _acts(node: Node) -> bool:
    """Whether a call writes into one of its arguments, or is of a delegate that changes a buffer: it is needed even if
    nothing reads its result. Assertions are not: they leave no trace in a program."""
    if node.target is call_delegate:
        delegate: Any = node.graph.owning_module.get_submodule(str(node.args[0].target))  # type: ignore[union-attr]
        return bool(delegate.original_module.graph_signature.buffers_to_mutate)
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and isinstance(schema, torch.FunctionSchema) and schema.is_mutable


def _changed_placeholders(program: ExportedProgram, placeholders: Mapping[str, Node]) -> dict[int, Node]:
    """Index of each output that is a new value -> the placeholder that takes it."""
    signature = program.graph_signature
    by_target = {spec.target: spec.arg.name for spec in signature.input_specs if spec.target is not None}
    changed: dict[int, Node] = {}
    for i, spec in enumerate(signature.output_specs):
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            changed[i] = placeholders[str(spec.target)]
        elif spec.kind in _STATE_MUTATIONS:
            changed[i] = placeholders[by_target[spec.target]]
    return changed


def _trained_placeholders(program: ExportedProgram, placeholders: Mapping[str, Node]) -> tuple[Node, ...]:
    """The placeholders of parameters that the program computes a gradient of, in the order of the gradients."""
    signature = program.graph_signature
    by_target = {target: name for name, target in signature.inputs_to_parameters.items()}
    targets = (s.target for s in signature.output_specs if s.kind is OutputKind.GRADIENT_TO_PARAMETER)
    return tuple(placeholders[by_target[target]] for target in targets if target in by_target)


_RETURNED = frozenset(
    {
        OutputKind.USER_OUTPUT,
        OutputKind.LOSS_OUTPUT,
        OutputKind.GRADIENT_TO_PARAMETER,
        OutputKind.GRADIENT_TO_USER_INPUT,
    }
)
"""A training step gives its loss and its gradients to the caller, like any output."""

_STATE_MUTATIONS = frozenset({OutputKind.BUFFER_MUTATION, getattr(OutputKind, "PARAMETER_MUTATION", None)})


def _held(program: ExportedProgram, spec: InputSpec) -> object:
    target = str(spec.target)
    tensors: Mapping[str, object] = program.state_dict if target in program.state_dict else program.constants
    return tensors.get(target)
