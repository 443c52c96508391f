"""A program of a model that torchao's `quantize_` went over -> the same, its weights constants, stored as ours are.

    before                                               after
        q = access_subclass_inner_tensor(w, "qdata")         w' = dequantized_weight(w_packed, w_scales)
        s = access_subclass_inner_tensor(w, "scale")         y  = linear(x, w', b)
        w' = torchao.dequantize_affine(q, [1, 32], s, …)
        y  = linear(x, w', b)

torchao keeps four bits in a byte each; here they are packed, and unsigned bytes become signed ones. Its layers of 8
bits compute with the codes and scale the result: they become a dequantized weight, and where values are quantized too,
dequantized values. Values that are quantized token by token go through `quantized_decomposed.quantize_per_token`, which
has kernels; torchao's operators have none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from delegraph.aot.graph.bodies import referenced
from delegraph.aot.quantize.torchao import pt2e
from delegraph.aot.quantize.weights.names import add_constant
from delegraph.aot.quantize.weights.packing import ZERO_CODE, dequantized_weight, gathered_rows, pack
from delegraph.aot.quantize.weights.reexport import exported_again
from delegraph.aot.torch_internals import is_traceable_wrapper_subclass

__all__ = ["with_plain_weights"]

aten = torch.ops.aten


def with_plain_weights(
    method: str, program: ExportedProgram, preserved: Collection[torch._ops.OpOverload] = ()
) -> ExportedProgram:
    """`program` itself if it has no weights of torchao's; calls of the operators in `preserved` stay as they are.

    Raises `LoweringError` as `exported_again`.
    """
    tensors = [*program.state_dict.values(), *program.constants.values()]
    if not any(isinstance(tensor, torch.Tensor) and is_traceable_wrapper_subclass(tensor) for tensor in tensors):
        return program
    pt2e()  # registers the operators of `quantized_decomposed`
    module = program.module(check_guards=False)
    assert isinstance(module, GraphModule)
    _unwrap(module)
    for node in list(module.graph.nodes):
        known = node.op == "call_function" and node.target not in preserved
        rule = _RULES.get(str(node.target)) if known else None
        if rule is not None and (replacement := rule(module, node)) is not None:
            replacement.meta = {**node.meta}
            node.replace_all_uses_with(replacement)
    module.graph.eliminate_dead_code()
    module.recompile()
    return exported_again(method, module, program)


def _unwrap(module: GraphModule) -> None:
    """Let the graph read the tensors inside, and forget what it asserts about the ones outside."""
    graph = module.graph
    inner: dict[str, Node] = {}
    for node in graph.find_nodes(op="call_function", target=torch.ops.export.access_subclass_inner_tensor.default):
        outer, part = node.args
        assert isinstance(outer, Node)
        name = f"{outer.target}_{part}"
        if name not in inner:
            tensor = getattr(referenced(module, outer), str(part))
            with graph.inserting_before(node):
                inner[name] = _read(module, add_constant(module, name, tensor.detach().contiguous()))
        node.replace_all_uses_with(inner[name])
        graph.erase_node(node)
    for node in graph.find_nodes(op="call_function", target=aten._assert_tensor_metadata.default):
        graph.erase_node(node)


# ---- one rule for each operator; the result stands for the node's --------------------------------------


def _dequantize(module: GraphModule, node: Node) -> Node | None:
    """The dequantize call of a weight, or of values that were quantized token by token."""
    codes, block, scales, zeros, dtype, low, high, out = _arguments(node)
    if not (isinstance(codes, Node) and isinstance(block, Sequence)):
        return None
    graph = module.graph
    if codes.op == "get_attr":
        weight = referenced(module, codes)
        form = _form_of(weight, low, high)
        zero_points = referenced(module, zeros) if isinstance(zeros, Node) else None
        if not _by_rows(weight, block) or form is None or (zero_points is not None and zero_points.is_floating_point()):
            return None
        with graph.inserting_before(node):
            return _stored(module, codes, referenced(module, scales), zero_points, form, out)
    if not _by_token(codes, block):
        return None
    with graph.inserting_before(node):
        return graph.call_function(dequantized_tokens, (codes, scales, zeros, low, high, dtype, out))


def _quantize(module: GraphModule, node: Node) -> Node | None:
    x, block, scales, zeros, dtype, low, high = _arguments(node)
    if not (isinstance(x, Node) and isinstance(block, Sequence) and _by_token(x, block)):
        return None
    with module.graph.inserting_before(node):
        return module.graph.call_function(quantized_tokens, (x, scales, zeros, low, high, dtype))


def _choose(module: GraphModule, node: Node) -> Node | None:
    x, mapping, block, dtype, *_ = node.args
    if not (isinstance(x, Node) and isinstance(block, Sequence) and _by_token(x, block)) or dtype != torch.int8:
        return None
    ranges = {"SYMMETRIC": symmetric_ranges, "ASYMMETRIC": asymmetric_ranges}.get(str(mapping))
    if ranges is None:
        return None
    with module.graph.inserting_before(node):
        return module.graph.call_function(ranges, (x,))


def _embedding(module: GraphModule, node: Node) -> Node | None:
    """Take rows out before they are dequantized: a table is large, and little of it read."""
    table, indices = node.args[:2]
    if not (isinstance(table, Node) and table.target is dequantized_weight):
        return None
    stored, scales, zeros, shape, dtype = table.args
    graph = module.graph
    with graph.inserting_before(node):
        parts = [None if part is None else graph.call_method("view", (part, shape[0], -1)) for part in (scales, zeros)]  # type: ignore[index]
        return graph.call_function(gathered_rows, (indices, stored, *parts, dtype))


def _scaled_product(module: GraphModule, node: Node) -> Node | None:
    """`mm(x, codes) * scales`, of weights in 8 bits -> `linear(x, weight)`, in the place of the second product; and
    `mm(x, t(weight))` of a dequantized one, which backends would not know."""
    x, turned = node.args
    weight = _behind(turned)
    if weight is not None and weight.target is dequantized_weight and _dtype(weight) == _dtype(node):
        with module.graph.inserting_before(node):
            return module.graph.call_function(aten.linear.default, (x, weight))
    # mm(x, t(codes)) * scales: the rule is for the first product, and edits the second
    codes, scaled = _source(turned), _following_mul(node, 1)
    if codes is not None and scaled is not None:
        _put_linear(module, x, codes, scaled, _dtype(scaled))
    return None


def _integer_product(module: GraphModule, node: Node) -> Node | None:
    """`linear` of what is dequantized, in float32; any other is computed as it is.

    _int_mm(q, codes) * x_scales * scales
    (_int_mm(q, codes) * x_scales - x_zeros * x_scales * sum(codes)) * scales
    """
    x, turned = node.args
    codes = _source(turned)
    scaled = None if codes is None else _following_mul(node, 2, of_zeros=codes)
    quantized: Any = x.args[0] if isinstance(x, Node) and x.target == aten.reshape.default else x
    graph = module.graph
    if codes is None or scaled is None or quantized.target is not quantized_tokens:
        with graph.inserting_before(node):
            return graph.call_function(integer_product, (x, turned))
    with graph.inserting_before(node):
        values = graph.call_function(dequantized_tokens, (quantized, *quantized.args[1:], torch.float32))
        if x is not quantized:
            values = graph.call_function(aten.reshape.default, (values, x.args[1]))  # type: ignore[union-attr]
    _put_linear(module, values, codes, scaled, torch.float32)
    return None


_RULES: Final[dict[str, Callable[[GraphModule, Node], Node | None]]] = {
    "torchao.dequantize_affine.default": _dequantize,
    "torchao.quantize_affine.default": _quantize,
    "torchao.choose_qparams_affine.default": _choose,
    "aten.embedding.default": _embedding,
    "aten.mm.default": _scaled_product,
    "aten._int_mm.default": _integer_product,
}


# ---- what stands in the graph until it is exported again ------------------------------------------------


def symmetric_ranges(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A scale for each token about zero, -128 to 127, and zeros (torchao's `MappingType.SYMMETRIC`)."""
    scales = (torch.amax(x.abs(), -1, keepdim=True) / 127.5).to(torch.float32)  # rounded as `x` is
    scales = torch.clamp(scales, min=torch.finfo(torch.float32).eps)
    return scales, torch.zeros_like(scales, dtype=torch.int64)


def asymmetric_ranges(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A scale and a zero point for each token, -128 to 127."""
    scales, zeros = torch.ops.quantized_decomposed.choose_qparams_per_token_asymmetric.default(x, torch.int8)
    return scales, zeros


def quantized_tokens(
    x: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, low: int, high: int, dtype: torch.dtype
) -> torch.Tensor:
    """Codes of `x`, `scales` and `zeros` by token."""
    operator = torch.ops.quantized_decomposed.quantize_per_token.default
    codes: torch.Tensor = operator(x, scales, zeros, low, high, dtype)
    return codes


def dequantized_tokens(
    codes: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor,
    low: int,
    high: int,
    dtype: torch.dtype,
    out: torch.dtype,
) -> torch.Tensor:
    """The values of codes, `scales` and `zeros` by token."""
    operator = torch.ops.quantized_decomposed.dequantize_per_token.default
    values: torch.Tensor = operator(codes, scales, zeros, low, high, dtype, out)
    return values


def integer_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`_int_mm`, which no runtime has, by float64, in which sums of products of int8 are exact."""
    return torch.mm(a.to(torch.float64), b.to(torch.float64)).to(torch.int32)


# ---- weights --------------------------------------------------------------------------------------------


def _put_linear(module: GraphModule, x: Any, codes: Node, scaled: Node, dtype: torch.dtype) -> None:
    """`linear` of `x`, computed in `dtype`, in the place of `scaled`: the product of the result with the scales of
    `codes`."""
    graph = module.graph
    scales = attrgetter(f"{str(codes.target).removesuffix('qdata')}scale")(module)
    with graph.inserting_before(scaled):
        weight = _stored(module, codes, scales, None, _BYTES, dtype)
        linear = graph.call_function(aten.linear.default, (x, weight))
        if _dtype(scaled) != dtype:
            linear = graph.call_function(aten.to.dtype, (linear, _dtype(scaled)))
    linear.meta = dict(scaled.meta)
    scaled.replace_all_uses_with(linear)


@dataclass(frozen=True, slots=True)
class _Form:
    """Codes from `lowest` to `highest` are stored with `shift` added: int8 as they are, uint8 two to a byte."""

    lowest: int
    highest: int
    shift: int
    dtype: torch.dtype

    @property
    def kind(self) -> str:
        """The end of the names of constants in this form."""
        return "packed" if self.dtype == torch.uint8 else "int8"

    @property
    def zero(self) -> int:
        """The stored code of 0.0 that `dequantized_weight` takes where there are no zero points."""
        return ZERO_CODE if self.dtype == torch.uint8 else 0


_BYTES: Final = _Form(-128, 127, 0, torch.int8)

_FORMS: Final = (
    _Form(-ZERO_CODE, 15 - ZERO_CODE, ZERO_CODE, torch.uint8),
    _Form(0, 15, 0, torch.uint8),
    _BYTES,
    _Form(0, 255, -128, torch.int8),
)


def _form_of(weight: torch.Tensor, lowest: Any, highest: Any) -> _Form | None:
    """The smallest that has all codes that there may be; None where they are larger than a byte."""
    in_pairs = weight.ndim == 2 and weight.shape[1] % 2 == 0
    fit = (form for form in _FORMS if form.lowest <= lowest and highest <= form.highest)
    return next((form for form in fit if in_pairs or form.dtype == torch.int8), None)


def _stored(
    module: GraphModule,
    codes: Node,
    scales: torch.Tensor,
    zero_points: torch.Tensor | None,
    form: _Form,
    dtype: torch.dtype,
) -> Node:
    """A call of `dequantized_weight` of constants, named after the weight (see `names.py`); the same ones where `codes`
    are read again."""
    weight = referenced(module, codes)
    if _STORED not in codes.meta:  # a tied weight is stored once
        name = f"{str(codes.target).removesuffix('_qdata')}_{form.kind}"
        codes.meta[_STORED] = [
            None if tensor is None else add_constant(module, f"{name}{part}", tensor)
            for part, tensor in _parts(weight, scales, zero_points, form).items()
        ]
    constants = [None if name is None else _read(module, name) for name in codes.meta[_STORED]]
    return module.graph.call_function(dequantized_weight, (*constants, list(weight.shape), dtype))


def _parts(
    weight: torch.Tensor, scales: torch.Tensor, zero_points: torch.Tensor | None, form: _Form
) -> dict[str, torch.Tensor | None]:
    """The arguments of `dequantized_weight`, by the ends of their names."""
    codes = (weight.to(torch.int16) + form.shift).to(form.dtype)
    zeros = torch.zeros(scales.numel()) if zero_points is None else zero_points.reshape(-1)
    zeros = zeros.to(torch.int16) + form.shift  # shifted as the codes are: their difference is what counts
    return {
        "": pack(codes) if form.dtype == torch.uint8 else codes,
        "_scales": scales.reshape(-1).float(),
        "_zero_points": None if (zeros == form.zero).all() else zeros.to(form.dtype),
    }


_STORED: Final = "stored"
"""Where the meta of codes has the names of what is stored of them."""


def _by_rows(weight: torch.Tensor, block: Sequence[Any]) -> bool:
    """Whether a scale is for a row, or a part of one."""
    whole = list(block[1:]) == list(weight.shape[1:])
    return block[0] == 1 and (whole or weight.ndim == 2) and weight.ndim >= 2


def _by_token(x: Node, block: Sequence[Any]) -> bool:
    """Whether a scale is for what the last dim holds."""
    return all(size == 1 for size in block[:-1]) and block[-1] == x.meta["val"].shape[-1]


def _arguments(node: Node) -> list[Any]:
    """All arguments of a call of `quantize_affine` or `dequantize_affine`, defaults filled in: limits are those of the
    codes' dtype."""
    assert isinstance(node.target, torch._ops.OpOverload)
    named: dict[str, Any] = {argument.name: None for argument in node.target._schema.arguments}
    named |= dict(zip(named, node.args, strict=False)) | node.kwargs
    codes = torch.iinfo(named.get("input_dtype") or named["output_dtype"])
    defaults = {"quant_min": codes.min, "quant_max": codes.max, "output_dtype": torch.float32}
    return [defaults.get(name) if value is None else value for name, value in named.items()]


def _dtype(node: Node) -> torch.dtype:
    dtype: torch.dtype = node.meta["val"].dtype
    return dtype


def _source(turned: Any) -> Node | None:
    """The codes of a weight, behind `t` and a change of dtype."""
    source = _behind(turned)
    return source if source is not None and source.op == "get_attr" and str(source.target).endswith("_qdata") else None


def _behind(turned: Any) -> Node | None:
    while isinstance(turned, Node) and turned.target in (aten.t.default, aten.to.dtype):
        turned = turned.args[0]
    return turned if isinstance(turned, Node) else None


def _following_mul(node: Node, count: int, *, of_zeros: Node | None = None) -> Node | None:
    """The `count`-th product behind `node`, if nothing else reads what is in between; what is subtracted there is what
    zero points add to a product with the codes `of_zeros`."""
    for user in _only_users(node):
        if user.target == aten.sub.Tensor and not _reads_sums(user.args[1], of_zeros):
            return None
        count -= user.target == aten.mul.Tensor
        if not count:
            return user
    return None


def _only_users(node: Node) -> Iterator[Node]:
    while len(node.users) == 1:
        previous, (node,) = node, node.users
        if node.target not in (aten.mul.Tensor, aten.sub.Tensor, aten.to.dtype) or node.args[0] is not previous:
            return
        yield node


def _reads_sums(value: Any, codes: Node | None) -> bool:
    """Whether `value` is a product of which a factor is `sum(codes)`."""
    if not isinstance(value, Node) or codes is None:
        return False
    if value.target == aten.sum.dim_IntList:
        summed = _source(value.args[0])
        return summed is not None and summed.target == codes.target and value.args[1] == [-1]
    return value.target in (aten.mul.Tensor, aten.to.dtype) and any(_reads_sums(arg, codes) for arg in value.args)


def _read(module: GraphModule, name: str) -> Node:
    node = module.graph.get_attr(name)
    node.meta["val"] = referenced(module, node)
    return node
