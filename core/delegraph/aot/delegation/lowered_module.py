"""A compiled partition as a module, and the operator that calls it: a lowered program still runs in eager mode.

`call_delegate(lowered_module, *inputs)` gives a tuple, one element per output of the partition. Eagerly it runs the
partition's original program; under fake tensors it gives fakes; under tracing it becomes one node again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch._C import DispatchKey
from torch._higher_order_ops.utils import autograd_not_implemented
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, track_tensor_tree
from torch.fx.node import Node
from torch.utils import _pytree as pytree

from delegraph.interfaces.lowering import NamedDataStoreOutput
from delegraph.interfaces.stamp import STAMP_KEY
from delegraph.program.schema import CompileSpec

__all__ = ["LoweredBackendModule", "call_delegate", "get_lowered_module", "is_delegate_call"]


class LoweredBackendModule(torch.nn.Module):
    """One delegate: the blob that its backend made, and the program that the blob stands for.

    `compile_specs` include the blob's stamp. `debug_handles` are the handles of the edge nodes that were cut out;
    `debug_handle_map` is the backend's own: its instruction ids to such handles. The weights of `original_module`
    are not parameters of this module: they are the delegate's business alone.
    """

    def __init__(
        self,
        backend_id: str,
        original_module: ExportedProgram,
        compile_specs: Sequence[CompileSpec] = (),
        processed_bytes: bytes = b"",
        named_data_store_output: NamedDataStoreOutput | None = None,
        debug_handle_map: Mapping[Any, Sequence[int]] | None = None,
        tag: str = "",
    ) -> None:
        super().__init__()
        self.backend_id = backend_id
        self.original_module = original_module
        self.compile_specs = list(compile_specs)
        self.processed_bytes = processed_bytes
        self.named_data_store_output = named_data_store_output
        self.debug_handle_map = dict(debug_handle_map or {})
        self.tag = tag
        self._buffers_kept: dict[str, torch.Tensor] = {}

    @property
    def is_compiled(self) -> bool:
        """Whether its backend has made the blob: it is stamped then, however short it is."""
        return any(spec.key == STAMP_KEY for spec in self.compile_specs)

    def kept_buffer(self, name: str) -> torch.Tensor:
        """The eager run's own value of the buffer `name`, which the partition changes; the model's stays as it was."""
        if name not in self._buffers_kept:
            self._buffers_kept[name] = _state(self.original_module, name).detach().clone()
        return self._buffers_kept[name]

    @property
    def debug_handles(self) -> tuple[int, ...]:
        """The debug handles of the partition's nodes, in graph order, each once."""
        calls = (node for node in self.original_module.graph.nodes if node.op == "call_function")
        handles = (node.meta.get("debug_handle") for node in calls)
        return tuple(dict.fromkeys(handle for handle in handles if isinstance(handle, int)))

    def forward(self, *inputs: Any) -> tuple[Any, ...]:
        return call_delegate(self, *inputs)

    def __deepcopy__(self, memo: dict[int, Any]) -> LoweredBackendModule:
        return self  # a finished blob and its program are never edited


class _CallDelegate(HigherOrderOperator):
    def __init__(self) -> None:
        super().__init__("delegraph_call_delegate")  # type: ignore[no-untyped-call]

    def __call__(self, lowered_module: LoweredBackendModule, *inputs: Any) -> tuple[Any, ...]:
        result: tuple[Any, ...] = super().__call__(lowered_module, *inputs)  # type: ignore[no-untyped-call]
        return result


call_delegate = _CallDelegate()


def is_delegate_call(node: Node) -> bool:
    """Whether `node` calls a delegate."""
    return node.op == "call_function" and node.target is call_delegate


def get_lowered_module(root: torch.nn.Module, call: Node) -> LoweredBackendModule:
    """The lowered module that the delegate call `call`, a node of `root`'s graph, refers to."""
    reference = call.args[0]
    assert isinstance(reference, Node)
    module = root.get_submodule(str(reference.target))
    assert isinstance(module, LoweredBackendModule)
    return module


# ---- running the original program ------------------------------------------------------------------


def _run(
    lowered: LoweredBackendModule, inputs: Sequence[Any], state: Callable[[str], torch.Tensor]
) -> tuple[list[Any], dict[str, Any]]:
    """The partition's outputs, and the new values of the buffers that it changes; `state` gives weights by name."""
    program = lowered.original_module
    signature = program.graph_signature
    values = iter(inputs)
    arguments = [
        next(values) if spec.kind is InputKind.USER_INPUT else state(str(spec.target)) for spec in signature.input_specs
    ]
    with torch.no_grad():
        results = torch.fx.Interpreter(program.graph_module).run(*arguments, enable_io_processing=False)
    outputs, changed = [], {}
    for spec, value in zip(signature.output_specs, results, strict=True):
        if spec.kind is OutputKind.BUFFER_MUTATION:
            changed[str(spec.target)] = value
        else:
            outputs.append(value)
    return outputs, changed


def _state(program: ExportedProgram, name: str) -> torch.Tensor:
    held = program.state_dict if name in program.state_dict else program.constants
    return cast(torch.Tensor, held[name])


@call_delegate.py_impl(DispatchKey.CompositeExplicitAutograd)
def _eager(lowered: LoweredBackendModule, *inputs: Any) -> Any:
    program = lowered.original_module
    kept = set(program.graph_signature.buffers_to_mutate.values())
    outputs, changed = _run(
        lowered, inputs, lambda name: lowered.kept_buffer(name) if name in kept else _state(program, name)
    )
    for name, value in changed.items():
        lowered.kept_buffer(name).copy_(value)
    return tuple(outputs)


call_delegate.py_autograd_impl(autograd_not_implemented(call_delegate, deferred_error=True))


@call_delegate.py_impl(FakeTensorMode)
def _fake(mode: FakeTensorMode, lowered: LoweredBackendModule, *inputs: Any) -> Any:
    def fake_state(name: str) -> torch.Tensor:
        return mode.from_tensor(_state(lowered.original_module, name), static_shapes=True)

    with mode:
        outputs, _ = _run(lowered, inputs, fake_state)
    return tuple(outputs)


@call_delegate.py_impl(ProxyTorchDispatchMode)
def _traced(mode: ProxyTorchDispatchMode, lowered: LoweredBackendModule, *inputs: Any) -> Any:
    outputs = call_delegate(lowered, *inputs)
    tracer: Any = mode.tracer
    reference = tracer.create_proxy("get_attr", _register(tracer.root, lowered), (), {})
    arguments = pytree.tree_map(tracer.unwrap_proxy, inputs)
    call = tracer.create_proxy("call_function", call_delegate, (reference, *arguments), {})
    return track_tensor_tree(outputs, call, constant=None, tracer=tracer)


def _register(root: torch.nn.Module, lowered: LoweredBackendModule) -> str:
    """The attribute of `root` that holds `lowered`, made if there is none."""
    for name, module in root.named_children():
        if module is lowered:
            return name
    number = sum(isinstance(module, LoweredBackendModule) for module in root.children())
    name = f"lowered_module_{number}"
    root.register_module(name, lowered)
    return name


@call_delegate.py_functionalize_impl
def _functionalized(context: Any, lowered: LoweredBackendModule, *inputs: Any) -> Any:
    unwrapped = context.unwrap_tensors(inputs)
    with context.redispatch_to_next():
        return context.wrap_tensors(call_delegate(lowered, *unwrapped))
