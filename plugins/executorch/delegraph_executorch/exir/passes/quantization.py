"""Operators on quantized tensors, and the pass that puts them where a graph dequantizes, calls and quantizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.ao.quantization.fx._decomposed import quantized_decomposed_lib
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from delegraph.aot import ResolvedSignature, exir_ops, schema_arguments
from delegraph_executorch.bridge.imports import let_wheel_define_operators
from delegraph_executorch.exir.pass_base import ExportPass, PassResult
from delegraph_executorch.exir.passes.constants import constant_prop_pass

# The names, schemas and packed layouts are those of ExecuTorch's runtime operators (`exir/passes/`
# `_quant_patterns_and_replacements.py`), of which the portable library has kernels. Where ExecuTorch's wheel is
# installed too, its registration is the one that stands.


_EMBEDDING: Final = (
    "(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, int weight_quant_max,"
    " Tensor indices"
)
_SIDE: Final = "float {0}_scale, int {0}_zero_point, int {0}_quant_min, int {0}_quant_max"
_ADD: Final = f"(Tensor a, {_SIDE.format('a')}, Tensor b, {_SIDE.format('b')}, {_SIDE.format('out')}"

BITS: Final = {"embedding_byte": 8, "embedding_4bit": 4, "embedding_2bit": 2}


def _unpack(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """Packed bytes -> signed values, one each."""
    if bits == 8:
        return weight
    shifts = [4, 0] if bits == 4 else [0, 2, 4, 6]
    bytes_ = weight.view(torch.uint8)
    values: list[torch.Tensor] = [(bytes_ >> shift) & (2**bits - 1) for shift in shifts]
    unpacked: torch.Tensor = torch.stack(values, -1).flatten(1).to(torch.int8) - 2 ** (bits - 1)
    return unpacked


def pack_embedding_weight(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """Signed values of 2 or 4 bits -> bytes of 4 or 2 of them, as the kernels read them."""
    if bits == 8:
        return weight
    shifts = [4, 0] if bits == 4 else [0, 2, 4, 6]
    raised = (weight + 2 ** (bits - 1)).to(torch.uint8).unflatten(1, (-1, len(shifts)))
    packed: torch.Tensor = torch.stack([raised[..., i] << s for i, s in enumerate(shifts)]).sum(0, dtype=torch.uint8)
    return packed


def _embedding(bits: int) -> Any:
    def embedding(
        weight: torch.Tensor,
        weight_scales: torch.Tensor,
        weight_zero_points: torch.Tensor | None,
        weight_quant_min: int,
        weight_quant_max: int,
        indices: torch.Tensor,
        dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        scales = weight_scales.unsqueeze(1) if weight_scales.dim() == 1 else weight_scales
        values = _unpack(weight, bits).to(scales.dtype).unflatten(1, (scales.shape[1], -1))
        if weight_zero_points is not None:
            values = values - weight_zero_points.to(scales.dtype).reshape(scales.shape).unsqueeze(-1)
        rows = (values * scales.unsqueeze(-1)).flatten(1)
        return torch.nn.functional.embedding(indices, rows).to(dtype or scales.dtype)

    return embedding


def _add(a: torch.Tensor, *rest: Any) -> torch.Tensor:
    a_parameters, b, b_parameters, out = rest[:4], rest[4], rest[5:9], rest[9:]
    operators = torch.ops.quantized_decomposed
    total = operators.dequantize_per_tensor(a, *a_parameters, a.dtype) + operators.dequantize_per_tensor(
        b, *b_parameters, b.dtype
    )
    quantized: torch.Tensor = operators.quantize_per_tensor(total, *out, a.dtype)
    return quantized


def _into(function: Any) -> Any:
    def out_variant(*args: Any, out: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        result = function(*args, **kwargs)
        return out.resize_(result.shape).copy_(result)

    return out_variant


def _define(name: str, parameters: str, function: Any) -> None:
    keywords = f"{parameters}," if "*" in parameters else f"{parameters}, *,"
    base, _, overload = name.partition(".")
    out_name = f"{base}.{overload}_out" if overload else f"{base}.out"
    for schema, target, implementation in (
        (f"{parameters}) -> Tensor", name, function),
        (f"{keywords} Tensor(a!) out) -> Tensor(a!)", out_name, _into(function)),
    ):
        quantized_decomposed_lib.define(f"{target}{schema}")
        quantized_decomposed_lib.impl(target, implementation, "CompositeExplicitAutograd")


let_wheel_define_operators()
if not hasattr(torch.ops.quantized_decomposed, "embedding_byte"):
    for _name, _bits in BITS.items():
        _define(_name, _EMBEDDING, _embedding(_bits))
        _define(f"{_name}.dtype", f"{_EMBEDDING}, *, ScalarType? dtype=None", _embedding(_bits))
if not hasattr(torch.ops.quantized_decomposed, "add"):
    _define("add", _ADD, _add)
elif not torch._C._dispatch_has_computed_kernel_for_dispatch_key("quantized_decomposed::add", "CPU"):
    quantized_decomposed_lib.impl(
        "add", _add, "CompositeExplicitAutograd"
    )  # which the wheel defines by its schema alone


#     %dq = dequantize_per_channel(%w_int8, %scales, %zeros, 0, -128, 127, int8)
#     %e = embedding(%dq, %indices)                             ->    %e = embedding_byte(%w_int8, %scales, …, %indices)
#
# Embeddings are the gain: their table stays quantized, and packed if its values have 2 or 4 bits. Additions and what
# moves values about (views, slices, concatenations) need no float either.


_aten, _quantized = exir_ops.edge.aten, exir_ops.edge.quantized_decomposed
_QUANTIZE: Final = _quantized.quantize_per_tensor.default
_DEQUANTIZE: Final = _quantized.dequantize_per_tensor.default
_MOVES: Final = frozenset(
    {_aten.view_copy.default, _aten.slice_copy.Tensor, _aten.permute_copy.default, _aten._reshape_alias_copy.default}
)


class QuantFusionPass(ExportPass):
    """Fuses in place. `node_value_dict` gives the tensors behind placeholders, by name: symmetric embeddings need it.

    New nodes always have `meta["val"]`, with which ExecuTorch asks for `_fix_node_meta_val=True`.
    """

    def __init__(
        self, _fix_node_meta_val: bool = False, node_value_dict: dict[str, torch.Tensor] | None = None
    ) -> None:
        super().__init__()
        self._fix_node_meta_val = _fix_node_meta_val
        self.node_value_dict = node_value_dict or {}

    def call(self, graph_module: GraphModule) -> PassResult:
        """Fuse what can be; a fused call is looked at again, so that chains of moves become one."""
        modified = False
        for node in list(graph_module.graph.nodes):
            fuse = _FUSED.get(node.target)
            if fuse is not None:
                modified |= fuse(graph_module.graph, node, self.node_value_dict)
        graph_module.graph.eliminate_dead_code()
        graph_module.graph.lint()
        graph_module.recompile()
        return PassResult(graph_module, modified)


def quant_fusion_and_const_prop_pass(program: ExportedProgram) -> ExportedProgram:
    """Fuse, then compute what depends on weights alone: packed tables take the place of their weights. In place."""
    QuantFusionPass(node_value_dict=_get_node_value_dict(program))(program.graph_module)
    return constant_prop_pass(program)


def _get_node_value_dict(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """The parameters and buffers of a program, by the names of their placeholders."""
    held = ResolvedSignature.of(program).constants
    kinds = (InputKind.PARAMETER, InputKind.BUFFER)
    return {node.name: constant.tensor for node, constant in held.items() if constant.kind in kinds}


# ---- between a dequantize and a quantize -----------------------------------------------------------


def _fuse_quantize(graph: Graph, quantize: Node, _values: Any) -> bool:
    """quantize(call(dequantize(x))) -> call'(x)."""
    call = quantize.args[0]
    if not isinstance(call, Node) or call.op != "call_function" or len(call.users) != 1:
        return False
    sources = _quantized_sources(call, quantize)
    if sources is None:
        return False
    if call.target == _aten.add.Tensor:
        return len(sources) == 2 and _fuse_add(graph, quantize, call)
    same = all(source.args[1:] == quantize.args[1:] for source in sources)
    if not same or not (call.target in _MOVES or call.target == _aten.cat.default):
        return False
    with graph.inserting_before(quantize):
        args, kwargs = map_arg((call.args, call.kwargs), lambda n: n.args[0] if n in sources else n)
        _replace(quantize, graph.create_node("call_function", call.target, args, kwargs))
    return True


def _quantized_sources(call: Node, quantize: Node) -> list[Node] | None:
    """The dequantize calls that `call` reads; None if it reads any other tensor."""
    sources = [n for n in call.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)]
    same_dtype = all(n.target == _DEQUANTIZE and n.args[5] == quantize.args[5] for n in sources)
    return sources if sources and same_dtype else None


def _fuse_add(graph: Graph, quantize: Node, add: Node) -> bool:
    a, b = add.args[0], add.args[1]
    assert isinstance(a, Node) and isinstance(b, Node)
    if add.kwargs.get("alpha", 1) != 1:
        return False
    with graph.inserting_before(quantize):
        fused = graph.call_function(
            _quantized.add.default, (a.args[0], *a.args[1:5], b.args[0], *b.args[1:5], *quantize.args[1:5])
        )
    _replace(quantize, fused)
    return True


# ---- embeddings ------------------------------------------------------------------------------------


def _fuse_embedding(graph: Graph, embedding: Node, values: dict[str, torch.Tensor]) -> bool:
    """embedding(dequantize(weight), indices) -> embedding_byte(weight, …, indices), or of 2 or 4 bits, packed."""
    table, indices = embedding.args[:2]
    schema = getattr(table.target, "_schema", None) if isinstance(table, Node) else None
    if not isinstance(table, Node) or schema is None or schema.name not in _READERS:
        return False
    given = dict(zip([a.name for a in schema.arguments], schema_arguments(table), strict=True))
    found = _READERS[schema.name](given, values)
    if found is None:
        return False
    weight, scales, zeros, smallest, largest = found
    bits = {4: 2, 16: 4}.get(largest - smallest + 1, 8)
    dtype = embedding.meta["val"].dtype
    packet = getattr(_quantized, next(name for name, each in BITS.items() if each == bits))
    with graph.inserting_before(embedding):
        packed = weight
        if bits < 8:
            packed = graph.call_function(_pack_operator(), (weight, bits))
            _describe(packed, embedding)
        if zeros is not None and zeros.meta["val"].dtype != scales.meta["val"].dtype:  # kernels ask for it
            zeros = graph.call_function(_aten._to_copy.default, (zeros,), {"dtype": scales.meta["val"].dtype})
            _describe(zeros, embedding)
        arguments = (packed, scales, zeros, smallest, largest, indices)
        if scales.meta["val"].dtype == dtype == torch.float32:
            fused = graph.call_function(packet.default, arguments)
        else:
            fused = graph.call_function(packet.dtype, arguments, {"dtype": dtype})
    _replace(embedding, fused)
    return True


def _per_channel(given: dict[str, Any], _values: Any) -> Any:
    """A scale for each row."""
    parts = [given[name] for name in ("input", "scales", "zero_points", "quant_min", "quant_max")]
    return parts if given["axis"] == 0 else None


def _affine(given: dict[str, Any], values: dict[str, torch.Tensor]) -> Any:
    """torchao's: a scale for each row, or for each block of a row."""
    weight, block, zeros = given["input"], given["block_size"], given["zero_point"]
    limits = given["quant_min"], given["quant_max"]
    if len(block) != 2 or block[0] != 1 or None in limits or weight.meta["val"].dtype != torch.int8:
        return None
    known = _tensor_behind(zeros, values)
    symmetric = known is not None and not known.any()
    return weight, given["scale"], None if symmetric else zeros, *limits


def _tensor_behind(node: Node | None, values: dict[str, torch.Tensor]) -> torch.Tensor | None:
    """What a placeholder stands for, or a part of it: torchao's quantized weights are tensors made of tensors."""
    if node is not None and node.target == exir_ops.edge.export.access_subclass_inner_tensor.default:
        holder, part = node.args
        assert isinstance(holder, Node) and isinstance(part, str)
        return getattr(values.get(holder.name), part, None)
    return None if node is None else values.get(node.name)


@torch.library.custom_op("quant_fusion::_pack_embedding_weight", mutates_args=())
def _pack(weight: torch.Tensor, bitwidth: int) -> torch.Tensor:
    return pack_embedding_weight(weight, bitwidth).clone()


@_pack.register_fake
def _(weight: torch.Tensor, bitwidth: int) -> torch.Tensor:
    return weight.new_empty((weight.shape[0], weight.shape[1] * bitwidth // 8), dtype=torch.uint8)


def _pack_operator() -> Any:
    return exir_ops.edge.quant_fusion._pack_embedding_weight.default


# ---- new nodes -------------------------------------------------------------------------------------


def _describe(new: Node, old: Node) -> None:
    """Metadata of `old`, whose place `new` takes, and the value that `new` gives."""
    args, kwargs = map_arg((new.args, new.kwargs), lambda n: n.meta["val"])
    mode = old.meta["val"].fake_mode
    with mode:
        new.meta = {**old.meta, "val": new.target(*args, **kwargs)}  # type: ignore[operator]


def _replace(old: Node, new: Node) -> None:
    _describe(new, old)
    old.replace_all_uses_with(new)


_READERS: Final[dict[str, Callable[[dict[str, Any], dict[str, torch.Tensor]], Any]]] = {
    "quantized_decomposed::dequantize_per_channel": _per_channel,
    "torchao::dequantize_affine": _affine,
}
"""By operator, from a table's arguments: weight, scales, zero points, smallest and largest value."""

_FUSED: Final[dict[Any, Callable[[Graph, Node, dict[str, torch.Tensor]], bool]]] = {
    _QUANTIZE: _fuse_quantize,
    _aten.embedding.default: _fuse_embedding,
}
