"""ExecuTorch's passes, several times faster: what a pass did not change is not traced again.

A pass of ExecuTorch edits a graph, then lets `ExportPass.call` trace the whole of it to learn the values of what it
added; torch generates Python code for every graph on the way, which nobody runs. XNNPACK has 17 passes, Arm a hundred.
Within `quick_retracing()`:

    pass that overrides no hook of the tracing     a value is computed where a call is new, in place
    `GraphModule.recompile`                        code is generated when somebody runs the module

    before, after the pass's own edit       values                        after
    a = relu(x)                  [4]        known: relu of a [4]          a = relu(x)        [4]
    b = view_copy(a, [2, 2])     none       computed                      b = view_copy(…)   [2, 2]
    c = mul(b, b)                [4]        stale: mul of two [2, 2]      c = mul(b, b)      [2, 2]

The results are those of ExecuTorch; `tests/bridge` compares the blobs. Other threads are not concerned.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.graph import CodeGen

from delegraph.aot import graph_modules
from delegraph_executorch.bridge.imports import executorch
from delegraph_executorch.bridge.replacing import replaced

__all__ = ["quick_retracing"]


@contextmanager
def quick_retracing(programs: Iterable[ExportedProgram]) -> Iterator[None]:
    """Let ExecuTorch's passes go about it as above; `programs`, in its dialect, are those that they start from."""
    passes = executorch("exir.pass_base")
    known = KnownValues()
    for program in programs:
        known.learn(program.graph_module)
    base, slow = passes._ExportPassBase, passes._ExportPassBase.call

    def call(self: Any, graph_module: GraphModule) -> Any:
        if not _traces_only(type(self), passes.ExportPass) or not known.bring_up_to_date(graph_module):
            return slow(self, graph_module)
        return passes.PassResult(graph_module, True)

    with replaced(base, "call", call), _code_when_it_is_run():
        yield


_HOOKS: Final = (
    *("call_operator", "call_sym", "call_cond", "call_while", "call_map", "call_scan", "call_getitem"),
    *("call_delegate", "call_submodule", "placeholder", "output", "inputs", "on_attr", "_fx"),
    *("ExportTracer", "ExportInterpreter"),
)


def _traces_only(kind: type, base: type) -> bool:
    """Whether tracing with a pass of this class gives the graph that it was given."""
    return all(getattr(kind, hook, None) is getattr(base, hook, None) for hook in _HOOKS)


# ---- values ----------------------------------------------------------------------------------------


class KnownValues:
    """What operators give for arguments, by all that it depends on: shapes, strides, dtypes, numbers."""

    def __init__(self) -> None:
        self._values: dict[Hashable, Any] = {}

    def learn(self, module: GraphModule) -> None:
        """Take over the values of a graph and of its control-flow bodies, which are right."""
        for _, part in graph_modules(module):
            for node in part.graph.nodes:
                if _is_simple(node) and "val" in node.meta:
                    self._values.setdefault(_question(node), node.meta["val"])

    def bring_up_to_date(self, module: GraphModule) -> bool:
        """Give every call of the graph its value. False, and nothing is done, if that takes more than operators."""
        calls = [node for node in module.graph.nodes if node.op == "call_function"]
        if not all(map(_is_simple, calls)) or any(node.op == "get_attr" for node in module.graph.nodes):
            return False
        mode = _fake_mode(module)
        if mode is None:
            return False
        for node in calls:
            question = _question(node)
            if question not in self._values:
                self._values[question] = _computed(node, mode)
            value = self._values[question]
            if "val" not in node.meta or _signature(node.meta["val"]) != _signature(value):
                node.meta["val"] = value
        return True


def _is_simple(node: Node) -> bool:
    """Whether the node calls an operator whose result follows from shapes and numbers alone."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return True
    op = getattr(node.target, "_op", None)
    op = op if isinstance(op, OpOverload) else node.target
    return isinstance(op, OpOverload) and not _DIFFERS.intersection(op.tags) and not op._schema.is_mutable


_DIFFERS: Final = frozenset(
    {torch.Tag.nondeterministic_seeded, torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
)


def _question(node: Node) -> Hashable:
    return (node.target, _signature(node.args), _signature(node.kwargs))


def _signature(value: Any) -> Hashable:
    """Equal for two arguments or results exactly if no operator can tell them apart by more than their content."""
    if isinstance(value, Node):
        return _signature(value.meta.get("val"))
    if isinstance(value, torch.Tensor):
        shape, strides = tuple(map(_size, value.shape)), tuple(map(_size, value.stride()))
        return (torch.Tensor, shape, strides, value.dtype, value.device)
    if isinstance(value, (list, tuple)):
        return (list, *map(_signature, value))
    if isinstance(value, Mapping):
        return (dict, *((key, _signature(item)) for key, item in value.items()))
    return (type(value), _size(value), str(value))  # 0.0 is not -0.0, nor True 1


def _size(value: Any) -> Any:
    return value.node.expr if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else value


def _computed(node: Node, mode: FakeTensorMode) -> Any:
    def value(argument: Node) -> Any:
        return argument.meta["val"]

    args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), value)
    with mode:
        return node.target(*args, **kwargs)  # type: ignore[operator]


def _fake_mode(module: GraphModule) -> FakeTensorMode | None:
    values = (node.meta.get("val") for node in module.graph.nodes)
    return next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)


# ---- code ------------------------------------------------------------------------------------------


@contextmanager
def _code_when_it_is_run() -> Iterator[None]:
    """Within the block a graph module of this thread gets its Python code when it is first run; what is left of them
    behind it has its code at once."""
    generate = GraphModule.recompile
    waiting: weakref.WeakSet[GraphModule] = weakref.WeakSet()

    def run(self: GraphModule, *args: Any, **kwargs: Any) -> Any:
        generate(self)
        waiting.discard(self)
        return type(self).forward(self, *args, **kwargs)

    def recompile(self: GraphModule) -> Any:
        if type(self.graph._codegen) is not CodeGen:  # a user's own signature; its module has more than code
            return generate(self)
        self._code = ""
        type(self).forward = run  # a graph module's class is its own
        waiting.add(self)
        return None

    with replaced(GraphModule, "recompile", recompile):
        yield
    for module in list(waiting):  # after an error they wait for whoever runs them: a graph may be half edited
        generate(module)
