"""GraphModule -> the same graph, traced anew: a pass that says, call by call, what stands in a call's place.

    class ReluToHardtanh(ExportPass):
        def call_operator(self, op, args, kwargs, meta):
            if op is not exir_ops.edge.aten.relu.default:
                return super().call_operator(op, args, kwargs, meta)
            return super().call_operator(exir_ops.edge.aten.hardtanh.default, (args[0], 0.0, 6.0), {}, meta)

Each node of the old graph is run on fake tensors by a method of the pass, which puts nodes into the new graph: shapes
and dtypes behind a change are right again, and no edge has to be rewired. It costs what tracing costs (about 1 ms a
node). A pass that overrides `call` alone edits the graph in place and costs what it does. The interface is ExecuTorch's
(`exir/pass_base.py`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar, Final, TypeAlias

import sympy
import torch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, GraphModule, Interpreter, Node, Tracer
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.symbolic_shapes import compute_unbacked_bindings, rebind_unbacked
from torch.fx.graph import CodeGen
from torch.fx.node import Argument as GraphArgument
from torch.fx.node import Target
from torch.fx.passes.infra.pass_base import PassBase, PassResult
from torch.utils import _pytree as pytree

from delegraph.aot.graph.source_location import user_location
from delegraph.aot.passes.proxy_value import NodeMetadata, ProxyValue
from delegraph.aot.torch_internals import FakeScriptObject, enable_python_dispatcher, executorch_call_delegate
from delegraph.errors import FOREIGN, DelegraphError, LoweringError, cause_of
from delegraph.interfaces.graph_pass import Dialect

__all__ = ["ExportPass"]

Argument: TypeAlias = object
"""A `ProxyValue`, a number, a body, … or a list of such."""

_SYMBOLIC: Final = (torch.SymInt, torch.SymFloat, torch.SymBool)
_SYM_OPERATORS: Final = frozenset(
    {torch.sym_int, torch.sym_float, torch.sym_ite, torch.sym_max, torch.sym_min, torch.sym_not, torch.sym_sum}
)
_SCALAR_MODULES: Final = frozenset({"_operator", "builtins", "math"})


class ExportTracer(Tracer):
    """The graph that is being made, and the module that what it refers to belongs to."""

    def __init__(self, callback: ExportPass, codegen: CodeGen) -> None:
        super().__init__()
        self.callback = callback
        self.root = torch.nn.Module()
        self.graph = Graph(tracer_cls=None)
        self.graph.set_codegen(codegen)
        self.tensor_attrs: dict[torch.Tensor | torch.ScriptObject | FakeScriptObject | pytree.TreeSpec, str] = {}
        self.submodules: dict[torch.nn.Module, str] = {}
        self.fake_tensor_mode: FakeTensorMode | None = None

    def create_arg(self, a: Argument) -> GraphArgument:
        """An argument as the graph has it: a node, or a constant."""
        if isinstance(a, ProxyValue):
            return a.node
        if isinstance(a, torch.nn.Module) and a not in self.submodules:
            self._add_submodule(a)
        elif isinstance(a, FakeTensor):
            if a.constant is None:
                raise LoweringError(
                    f"a value that no node gives cannot be an argument: {a}; hand the `ProxyValue` on, not its `data`"
                )
            a = a.constant
        elif isinstance(a, _SYMBOLIC):
            return a if a.node.constant is None else a.node.constant
        argument = super().create_arg(a)
        if isinstance(a, torch.Tensor) and isinstance(argument, Node) and argument.op == "get_attr":
            self.set_metadata(argument, a)
            self.callback.on_attr(ProxyValue(a, argument))
        return argument

    def _add_submodule(self, module: torch.nn.Module) -> None:
        prefix = "lowered_module" if hasattr(module, "backend_id") else "submodule"
        self.submodules[module] = f"{prefix}_{len(self.submodules)}"
        self.root.add_module(self.submodules[module], module)

    def set_metadata(self, node: Node, value: Argument) -> None:
        """Say by `meta["val"]` what `node` gives: `value`, its tensors fake."""
        node.meta["val"] = pytree.tree_map(self._fake, value)

    def _fake(self, value: object) -> object:
        if isinstance(value, FakeTensor) or not isinstance(value, torch.Tensor):
            return value if isinstance(value, (FakeTensor, *_SYMBOLIC, int, float, bool, str)) else None
        assert self.fake_tensor_mode is not None
        return self.fake_tensor_mode.from_tensor(value, static_shapes=True)


class ExportInterpreter(Interpreter):
    """Goes through the old graph and calls the pass's method for each node."""

    def __init__(self, callback: ExportPass, gm: GraphModule) -> None:
        super().__init__(gm)
        self.callback = callback
        self.node: Node = next(iter(gm.graph.nodes))

    def run_node(self, n: Node) -> object:
        """Run one node; an error says which."""
        self.node = n
        self.callback._replaced, self.callback.node_debug_str = n, n.format_node()
        try:
            return super().run_node(n)
        except DelegraphError:
            raise
        except FOREIGN as cause:
            name = type(self.callback).__name__
            raise LoweringError(f"pass {name}: {cause_of(cause)}", node=n.name, location=user_location(n)) from cause

    def placeholder(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Argument]) -> Argument:
        """Hand it to the pass."""
        return self.callback.placeholder(str(target), super().placeholder(target, args, kwargs), self._meta())

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Argument]) -> Argument:
        """Hand it to the pass."""
        return self.callback.output(args[0], self._meta()).data

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Argument]) -> Argument:
        """Refuse it: programs call operators."""
        raise self._refused(f"call_module is not supported: {target}")

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Argument]) -> Argument:
        """Refuse it: programs call operators."""
        raise self._refused(f"call_method is not supported: {target}")

    def call_function(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Argument]) -> Argument:
        """Hand a call to the method of the pass that is for its kind."""
        meta, callback = self._meta(), self.callback
        if target is operator.getitem:
            return callback.call_getitem(args[0], args[1], meta)
        if target in _SYM_OPERATORS or getattr(target, "__module__", None) in _SCALAR_MODULES:
            assert callable(target)
            return callback.call_sym(target, args, meta)
        if isinstance(target, (OpOverload, OpOverloadPacket)):
            return callback.call_operator(target, args, kwargs, meta)
        if not isinstance(target, HigherOrderOperator):
            raise self._refused(f"Unsupported target type: {target}")
        if target is executorch_call_delegate:
            return callback.call_delegate(args[0], args[1:], kwargs, meta)
        control_flow = CONTROL_FLOW.get(target.name())
        if control_flow is not None:
            return getattr(callback, control_flow)(*args, meta)
        return callback._fx("call_function", target, args, kwargs, meta)

    def _meta(self) -> NodeMetadata:
        return NodeMetadata(self.node.meta)

    def _refused(self, message: str) -> LoweringError:
        return LoweringError(message, node=self.node.name, location=user_location(self.node))


CONTROL_FLOW: Final[Mapping[str, str]] = {
    "cond": "call_cond",
    "while_loop": "call_while",
    "map_impl": "call_map",
    "scan": "call_scan",
}
"""Operator -> the method for it, which takes the operator's arguments and the metadata."""


class ExportPass(PassBase):
    """A pass that traces the graph anew; override the methods for what it changes, or `call` to edit in place.

    Methods get values as `ProxyValue` and give one; `super()`'s puts the call into the new graph. Nodes keep the
    metadata that is handed on as `meta`. `call_operator` may call `super()` several times, or return one of its
    arguments: the call is gone then. A pipeline that runs the pass checks `required_dialect` before it and
    `ensured_dialect` after it. Errors are `LoweringError`s that name the node.
    """

    ExportTracer: ClassVar[type[ExportTracer]] = ExportTracer
    ExportInterpreter: ClassVar[type[ExportInterpreter]] = ExportInterpreter

    required_dialect: Dialect | None = None
    ensured_dialect: Dialect | None = None

    tracer: Any = None
    """The `ExportTracer` of the graph, or body, that is being made."""
    interpreter: Any = None
    fake_tensor_mode: FakeTensorMode | None = None
    node_debug_str: str | None = None
    """The node of the old graph that is being run, as text."""
    _replaced: Node | None = None
    _symbols: set[sympy.Symbol | None] = frozenset()  # type: ignore[assignment]
    """Symbols of the old graph that stand for sizes of the new one."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """The graph traced anew, in a module of its own; `graph_module` stays as it is."""
        inputs, self._symbols = self.inputs(graph_module), set()
        with self._fake_mode(graph_module, inputs):
            result = self.call_submodule(graph_module, tuple(inputs))
        if self.should_preserve_symbolic_input_metadata():
            _check_symbols_of_inputs(graph_module, result.graph_module)
        return result

    def inputs(self, graph_module: GraphModule) -> list[Argument]:
        """The values of the placeholders, on which the graph is run."""
        placeholders = graph_module.graph.find_nodes(op="placeholder")
        for node in placeholders:
            if "val" not in node.meta and node.users:
                raise LoweringError(f'cannot trace anew: {node.name} has no meta["val"]', node=node.name)
        return [_constant_or_value(node.meta.get("val")) for node in placeholders]

    def should_preserve_symbolic_input_metadata(self) -> bool:
        """Whether it is an error if an input's symbolic sizes are others afterwards."""
        return True

    def on_attr(self, attr: ProxyValue) -> None:
        """A constant tensor has become part of the new graph."""

    def placeholder(self, name: str, arg: Argument, meta: NodeMetadata) -> ProxyValue:
        """An input called `name`, whose value is `arg`."""
        proxy = self.tracer.create_proxy("placeholder", name, (), {})
        if name.isidentifier():
            proxy.node.name = name  # the signature refers to it; the graph would rename `input`, a Python builtin
        proxy.node.meta = {**meta.data, "val": arg}
        return ProxyValue(arg, proxy)

    def call_operator(
        self, op: Target, args: tuple[Argument, ...], kwargs: dict[str, Argument], meta: NodeMetadata
    ) -> ProxyValue:
        """A call of an operator (`OpOverload`)."""
        return self._fx("call_function", op, args, kwargs, meta)

    def call_sym(self, target: Callable[..., object], args: tuple[Argument, ...], meta: NodeMetadata) -> ProxyValue:
        """A call of a Python function on symbolic sizes (`operator.add`, `torch.sym_max`)."""
        return self._fx("call_function", target, args, {}, meta)

    def call_size_operator(
        self, tensor_proxy: ProxyValue, dim: int, meta: NodeMetadata, *, edge_dialect: bool = False
    ) -> ProxyValue | int:
        """The size of a dim as an argument of a call: a number, or the result of `sym_size` where it varies.

        `edge_dialect` is ExecuTorch's: here that operator is the same in both dialects.
        """
        size = tensor_proxy.to_tensor().shape[dim]
        if not isinstance(size, torch.SymInt):
            return int(size)
        return self.call_operator(torch.ops.aten.sym_size.int, (tensor_proxy, dim), {}, meta)

    def call_size_operator_all(
        self, tensor_proxy: ProxyValue, meta: NodeMetadata, *, edge_dialect: bool = False
    ) -> list[ProxyValue | int]:
        """The sizes of all dims, as `call_size_operator` gives them."""
        rank = tensor_proxy.to_tensor().dim()
        return [self.call_size_operator(tensor_proxy, dim, meta, edge_dialect=edge_dialect) for dim in range(rank)]

    def call_getitem(self, value: ProxyValue, key: int, meta: NodeMetadata) -> ProxyValue:
        """One of the results of a call that has several."""
        return self._fx("call_function", operator.getitem, (value, key), {}, meta)

    def call_cond(
        self,
        pred: ProxyValue,
        true_fn: GraphModule,
        false_fn: GraphModule,
        inputs: Sequence[Argument],
        meta: NodeMetadata,
    ) -> ProxyValue:
        """`torch.cond`, after its branches."""
        branches = [self.call_submodule(body, tuple(inputs)).graph_module for body in (true_fn, false_fn)]
        return self._fx("call_function", torch.ops.higher_order.cond, (pred, *branches, list(inputs)), {}, meta)

    def call_while(
        self,
        cond_fn: GraphModule,
        body_fn: GraphModule,
        carried_inputs: Sequence[Argument],
        additional_inputs: Sequence[Argument],
        meta: NodeMetadata,
    ) -> ProxyValue:
        """`while_loop`, after its condition and its body."""
        inputs = (*carried_inputs, *additional_inputs)
        bodies = [self.call_submodule(body, inputs).graph_module for body in (cond_fn, body_fn)]
        arguments = (*bodies, carried_inputs, additional_inputs)
        return self._fx("call_function", torch.ops.higher_order.while_loop, arguments, {}, meta)

    def call_map(
        self, f: GraphModule, mapped_args: Sequence[ProxyValue], operands: Sequence[Argument], meta: NodeMetadata
    ) -> ProxyValue:
        """`map`, after its body, which is run on one row of each of `mapped_args`."""
        body = self.call_submodule(f, (*map(_row, mapped_args), *operands)).graph_module
        return self._fx("call_function", torch.ops.higher_order.map_impl, (body, mapped_args, operands), {}, meta)

    def call_scan(
        self,
        combine_fn: GraphModule,
        init: Sequence[ProxyValue],
        xs: Sequence[ProxyValue],
        additional_inputs: Sequence[Argument],
        meta: NodeMetadata,
    ) -> ProxyValue:
        """`scan`, after its body, which is run on `init` and one row of each of `xs`."""
        body = self.call_submodule(combine_fn, (*init, *map(_row, xs), *additional_inputs)).graph_module
        arguments = (body, init, xs, additional_inputs)
        return self._fx("call_function", torch.ops.higher_order.scan, arguments, {}, meta)

    def call_delegate(
        self,
        lowered_module: torch.nn.Module,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        meta: NodeMetadata,
    ) -> ProxyValue:
        """A call of a delegate; what lies in it stays as it is."""
        return self._fx("call_function", executorch_call_delegate, (lowered_module, *args), kwargs, meta)

    def output(self, results: Argument, meta: NodeMetadata) -> ProxyValue:
        """The outputs of the graph."""
        return self._fx("output", "output", (results,), {}, meta)

    def call_submodule(self, graph_module: GraphModule, inputs: tuple[Argument, ...]) -> PassResult:
        """A graph, or the body of a control-flow operator, traced anew on `inputs`."""
        outer = self.tracer, self.interpreter
        self.tracer = self.ExportTracer(self, graph_module.graph._codegen)
        self.tracer.fake_tensor_mode = self.fake_tensor_mode
        self.interpreter = Interpreter(GraphModule(torch.nn.Module(), Graph()))
        try:
            with fx_traceback.preserve_node_meta():
                self.ExportInterpreter(self, graph_module).run(*_data(inputs))
            new = GraphModule(self.tracer.root, self.tracer.graph)
        finally:
            self.tracer, self.interpreter = outer
        new.meta = dict(graph_module.meta)
        return PassResult(new, True)

    def _fx(
        self, kind: str, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Argument], meta: NodeMetadata
    ) -> ProxyValue:
        """A node of the new graph, and what it gives."""
        value = getattr(self.interpreter, kind)(target, *_data((args, kwargs)))
        old = self._replaced if self._replaced is not None and self._replaced.target == target else None
        name = None if old is None else old.name
        proxy = self.tracer.create_proxy(kind, target, *_proxies((args, kwargs)), name=name)
        proxy.node.meta.update(meta.data)
        proxy.node.meta.pop("tensor_meta", None)  # of the old value
        self.tracer.set_metadata(proxy.node, value)
        self._bind_symbols(proxy.node, value, None if old is None else old.meta.get("val"))
        return ProxyValue(value, proxy)

    def _bind_symbols(self, node: Node, value: torch.Tensor | tuple[torch.Tensor, ...], old_value: object) -> None:
        """Where a call makes up sizes (`nonzero`), they are the symbols that it made up in the old graph."""
        env = getattr(self.fake_tensor_mode, "shape_env", None)
        node.meta.pop("unbacked_bindings", None)
        if (bindings := compute_unbacked_bindings(env, value)) is None:
            return
        # running the call makes up u5 where the old graph had u0, to which other values refer: u5 becomes u0
        known = {path: _symbol_at(old_value, path) for path in bindings.values()}
        if self._symbols.isdisjoint(known.values()) and None not in known.values():
            node.meta["unbacked_bindings"] = {symbol: path for path, symbol in known.items()}
            self._symbols.update(known.values())
            rebind_unbacked(env, node, value)
        else:
            node.meta["unbacked_bindings"] = bindings

    @contextmanager
    def _fake_mode(self, graph_module: GraphModule, inputs: Sequence[Argument]) -> Iterator[None]:
        """The mode that the graph's values belong to, or a new one, entered."""
        values = pytree.tree_leaves([inputs, [node.meta.get("val") for node in graph_module.graph.nodes]])
        mode = next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)
        self.fake_tensor_mode = mode or FakeTensorMode(allow_non_fake_inputs=True)
        self.fake_tensor_mode.epoch += 1  # what `item()` gave in an earlier trace is remembered, and none of this one's
        constants_allowed = self.fake_tensor_mode.allow_non_fake_inputs
        self.fake_tensor_mode.allow_non_fake_inputs = True
        try:
            with ExitStack() as entered:
                entered.enter_context(self.fake_tensor_mode)
                if mode is not None:
                    entered.enter_context(enable_python_dispatcher())
                yield
        finally:
            self.fake_tensor_mode.allow_non_fake_inputs = constants_allowed


def _data(arguments: object) -> Any:
    return pytree.tree_map_only(ProxyValue, lambda value: value.data, arguments)


def _proxies(arguments: object) -> Any:
    return pytree.tree_map_only(
        ProxyValue, lambda value: value.node if isinstance(value.proxy_or_node, Node) else value.proxy, arguments
    )


def _symbol_at(value: object, path: pytree.KeyPath) -> sympy.Symbol | None:
    """The symbol that a size of `value` is; None where it is none."""
    try:
        size = pytree.key_get(value, path)
    except (AttributeError, IndexError, KeyError, TypeError):  # a value of another structure
        return None
    expression = size.node._expr if isinstance(size, _SYMBOLIC) else None
    return expression if isinstance(expression, sympy.Symbol) else None


def _constant_or_value(value: object) -> object:
    constant = getattr(value, "constant", None)
    return value if constant is None else constant


def _row(value: ProxyValue) -> torch.Tensor:
    """The row of `value` that a loop's body sees: a fake one even where there are none."""
    whole = value.to_tensor()
    return torch.empty_strided(whole.shape[1:], whole.stride()[1:], dtype=whole.dtype, device=whole.device)


def _symbols(module: GraphModule) -> list[list[str]]:
    """The symbolic sizes of each input, as text."""

    def text(value: object) -> list[str]:
        sizes = list(value.shape) if isinstance(value, torch.Tensor) else [value]
        return [f"{dim}: {size}" for dim, size in enumerate(sizes) if isinstance(size, _SYMBOLIC)]

    inputs = module.graph.find_nodes(op="placeholder")
    return [[part for leaf in pytree.tree_leaves(node.meta.get("val")) for part in text(leaf)] for node in inputs]


def _check_symbols_of_inputs(before: GraphModule, after: GraphModule) -> None:
    now = _symbols(after)
    for index, symbols in enumerate(_symbols(before)):
        if symbols and (index >= len(now) or now[index] != symbols):
            raise LoweringError(
                f"Input at position {index} did not preserve symbolic metadata: its sizes were {', '.join(symbols)};"
                " override should_preserve_symbolic_input_metadata to return False where that is meant"
            )
