"""Memory formats and dim orders: operators by either, and copies where kernels take one layout alone."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import torch
from torch.export import ExportedProgram

from delegraph.aot import ResolvedSignature, exir_ops, get_dim_order, get_memory_format
from delegraph_executorch.exir.pass_base import ExportPass, NodeMetadata, ProxyValue


def is_channel_last_dim_order(tensor: torch.Tensor) -> bool:
    """Whether `tensor` has four dims that lie in the order of channels last."""
    return tensor.dim() == 4 and list(tensor.dim_order()) == get_dim_order(torch.channels_last, 4)


def is_contiguous_dim_order(tensor: torch.Tensor) -> bool:
    """Whether the dims of `tensor` lie in their own order."""
    return list(tensor.dim_order()) == get_dim_order(torch.contiguous_format, tensor.dim())


DimOrderOpsMap: Final[dict[Any, Any]] = {
    exir_ops.edge.aten._to_copy.default: exir_ops.edge.dim_order_ops._to_dim_order_copy.default,
    exir_ops.edge.aten.empty.memory_format: exir_ops.edge.dim_order_ops._empty_dim_order.default,
    exir_ops.edge.aten.clone.default: exir_ops.edge.dim_order_ops._clone_dim_order.default,
}
MemoryFormatOpsMap: Final[dict[Any, Any]] = {by_order: by_format for by_format, by_order in DimOrderOpsMap.items()}


class MemoryFormatOpsPass(ExportPass):
    """Calls operators of `dim_order_ops`. `to_edge` has done it already; this is for graphs that a pass has made."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        """The call, by dim order; without a memory format the argument's order is kept, and sizes are contiguous."""
        if op not in DimOrderOpsMap:
            return super().call_operator(op, args, kwargs, meta)
        others = {name: value for name, value in kwargs.items() if name != "memory_format"}
        source = args[0].data if isinstance(args[0], ProxyValue) else args[0]
        is_tensor = isinstance(source, torch.Tensor)
        order = get_dim_order(kwargs.get("memory_format"), source.dim() if is_tensor else len(source))
        if order is None:
            order = [int(dim) for dim in source.dim_order()] if is_tensor else list(range(len(source)))
        return super().call_operator(DimOrderOpsMap[op], args, {**others, "dim_order": order}, meta)


class DimOrderOpsRevertPass(ExportPass):
    """Calls ATen's own operators, for backends that know no dim order."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        """The call, by memory format."""
        if op not in MemoryFormatOpsMap:
            return super().call_operator(op, args, kwargs, meta)
        others = {name: value for name, value in kwargs.items() if name != "dim_order"}
        memory_format = get_memory_format(kwargs.get("dim_order"))
        return super().call_operator(MemoryFormatOpsMap[op], args, {**others, "memory_format": memory_format}, meta)


_aten = exir_ops.edge.aten


class LegalizePortableDimOrderPass(ExportPass):
    """For programs that run on ExecuTorch's portable kernels: these operators read contiguous tensors alone there."""

    _target_ops: ClassVar[frozenset[Any]] = frozenset(
        {
            _aten._adaptive_avg_pool2d.default,
            _aten.avg_pool2d.default,
            _aten.expand_copy.default,
            _aten.mean.dim,
            _aten.sum.dim_IntList,
        }
    )

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        """The call, on a contiguous copy where its argument is not contiguous."""
        source = args[0].data if args and isinstance(args[0], ProxyValue) else None
        usual = [] if source is None or op not in self._target_ops else list(range(source.dim()))
        if source is None or op not in self._target_ops or [int(d) for d in source.dim_order()] == usual:
            return super().call_operator(op, args, kwargs, meta)
        copied = super().call_operator(
            exir_ops.edge.dim_order_ops._to_dim_order_copy.default,
            (args[0],),
            {"dim_order": usual},
            NodeMetadata(args[0].node.meta),
        )
        return super().call_operator(op, (copied, *args[1:]), kwargs, meta)


def convert_constant_dim_order_pass(exported_program: ExportedProgram) -> ExportedProgram:
    """Change constants and buffers in place, and what their placeholders say of them."""
    persistent = set(exported_program.state_dict)
    signature = exported_program.graph_signature
    names = {**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
    for node, held in ResolvedSignature.of(exported_program).constants.items():
        name = names.get(node.name)
        if name is None or held.tensor.is_contiguous() or _is_channels_last(held.tensor):
            continue
        holder = exported_program.state_dict if name in persistent else exported_program.constants
        holder[name] = held.tensor.contiguous()
        node.meta["val"] = node.meta["val"].contiguous()
    return exported_program


def _is_channels_last(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
