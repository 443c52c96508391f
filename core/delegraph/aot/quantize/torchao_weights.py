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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from delegraph.aot.edge.patterns import ANY, Capture, behind, captured, either, matches, op
from delegraph.aot.functional.decompose import Keep
from delegraph.aot.graph.bodies import referenced
from delegraph.aot.graph.operator_names import operator_name
from delegraph.aot.quantize.torchao import pt2e
from delegraph.aot.quantize.weights.as_program import as_program
from delegraph.aot.quantize.weights.names import add_constant
from delegraph.aot.quantize.weights.packing import ZERO_CODE, dequantized_weight, pack
from delegraph.aot.quantize.weights.stored_weights import TABLES, StoredParameter, gather_rows
from delegraph.aot.torch_internals import is_traceable_wrapper_subclass

__all__ = ["asked_by_others", "has_torchao_weights", "with_plain_weights"]

aten = torch.ops.aten


def has_torchao_weights(program: ExportedProgram) -> bool:
    """Whether torchao's `quantize_` went over the model."""
    tensors = [*program.state_dict.values(), *program.constants.values()]
    return any(isinstance(tensor, torch.Tensor) and is_traceable_wrapper_subclass(tensor) for tensor in tensors)


def with_plain_weights(method: str, program: ExportedProgram, keep: Keep = MappingProxyType({})) -> ExportedProgram:
    """`program` itself if it has no weights of torchao's; the calls in `keep` stay as they are: the user asks for them,
    or others' backends, which know no other form (`asked_by_others`).

    Raises `LoweringError` as `as_program`.
    """
    if not has_torchao_weights(program):
        return program
    pt2e()  # registers the operators of `quantized_decomposed`
    module = program.module(check_guards=False)
    assert isinstance(module, GraphModule)
    _unwrap(module)
    replacements = []
    for node in list(module.graph.nodes):  # in their order: a rule finds what those before it have put
        rule = None if _stays(node, keep) else _RULES.get(str(node.target))
        with module.graph.inserting_before(node):
            replacement = None if rule is None else rule(module, node)
        if replacement is not None:
            replacement.meta = {**node.meta}  # by whose dtype and shape the rules behind it go
            node.replace_all_uses_with(replacement)
            replacements.append(replacement)
    gather_rows(module, keep)
    for replacement in replacements:
        replacement.meta.pop("val", None)  # it is found anew
    module.graph.eliminate_dead_code()
    module.recompile()
    return as_program(method, module, program)


def _stays(node: Node, keep: Keep) -> bool:
    """Whether a call is kept whole."""
    if node.target not in keep:
        return False
    accepts = keep[node.target]  # type: ignore[index]
    return accepts is None or accepts(node)


def asked_by_others(keep: Keep) -> Keep:
    """Of the calls that partitioners keep, torchao's, but for that of a table: all of it would be dequantized, and few
    rows are read."""

    def asks(accepts: Callable[[Node], bool] | None) -> Callable[[Node], bool]:
        def stays(node: Node) -> bool:
            is_table = any(operator_name(reader) in TABLES for reader in node.users)
            return not is_table and (accepts is None or accepts(node))

        return stays

    return {op: asks(accepts) for op, accepts in keep.items() if op.namespace == "torchao"}


def _unwrap(module: GraphModule) -> None:
    """Let the graph read the tensors inside, and forget what it asserts about the ones outside."""
    graph = module.graph
    inner: dict[str, Node] = {}
    for node in graph.find_nodes(op="call_function", target=torch.ops.export.access_subclass_inner_tensor.default):
        outer, part = node.args
        assert isinstance(outer, Node)
        name = f"{outer.target}_{part}"
        if name not in inner:  # one node for each, so that patterns see where the same codes are read
            tensor = getattr(referenced(module, outer), str(part))
            with graph.inserting_before(node):
                inner[name] = graph.get_attr(add_constant(module, name, tensor.detach().contiguous()))
            inner[name].meta["val"] = tensor
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
    if codes.op == "get_attr":
        weight = referenced(module, codes)
        form = _form_of(weight, low, high)
        zero_points = referenced(module, zeros) if isinstance(zeros, Node) else None
        # scales of several rows, codes beyond a byte and zero points that are no codes stay torchao's call
        if not _by_rows(weight, block) or form is None or (zero_points is not None and zero_points.is_floating_point()):
            return None
        return _stored(module, codes, referenced(module, scales), zero_points, form, out)
    if not _by_token(codes, block):
        return None
    dequantize = torch.ops.quantized_decomposed.dequantize_per_token.default
    return module.graph.call_function(dequantize, (codes, scales, zeros, low, high, dtype, out))


def _quantize(module: GraphModule, node: Node) -> Node | None:
    x, block, scales, zeros, dtype, low, high = _arguments(node)
    if not (isinstance(x, Node) and isinstance(block, Sequence) and _by_token(x, block)):
        return None
    quantize = torch.ops.quantized_decomposed.quantize_per_token.default
    return module.graph.call_function(quantize, (x, scales, zeros, low, high, dtype))


def _choose(module: GraphModule, node: Node) -> Node | None:
    x, mapping, block, dtype, *_ = node.args
    if not (isinstance(x, Node) and isinstance(block, Sequence) and _by_token(x, block)) or dtype != torch.int8:
        return None
    if mapping == "SYMMETRIC":
        return module.graph.call_function(symmetric_ranges, (x,))
    choose = torch.ops.quantized_decomposed.choose_qparams_per_token_asymmetric.default
    return module.graph.call_function(choose, (x, dtype)) if mapping == "ASYMMETRIC" else None


def _integer_product(module: GraphModule, node: Node) -> Node:
    return module.graph.call_function(integer_product, node.args)


def _product(module: GraphModule, node: Node) -> Node | None:
    """`mm(x, t(weight))` of a dequantized one, which backends would not know, as the linear layer that it is."""
    for match in matches(_OF_WEIGHT, node):
        if _dtype(match.calls[_WEIGHT]) == _dtype(node):
            return module.graph.call_function(aten.linear.default, (match["x"], match.calls[_WEIGHT]))
    # one with codes is marked, and so is `_int_mm`, until it is scaled
    return module.graph.call_function(torch.mm, node.args) if any(matches(_TURNED, node.args[1])) else None


def _scaled_product(module: GraphModule, node: Node) -> Node | None:
    """A product with codes of 8 bits that is multiplied by their scales, as `linear` of the weight: in the dtype of the
    result, or, of quantized values, in float32 of these dequantized."""
    graph, match = module.graph, next(matches(_SCALED, node), None)
    if match is None:
        return None
    x, dtype, tokens = match.captures.get("x"), _dtype(node), match.captures.get("tokens")
    if tokens is not None:
        dequantize, dtype = torch.ops.quantized_decomposed.dequantize_per_token.default, torch.float32
        x = graph.call_function(dequantize, (tokens, *tokens.args[1:], dtype))
    if "shape" in match.captures:
        x = graph.call_function(aten.reshape.default, (x, match["shape"]))
    scales = attrgetter(f"{str(match['codes'].target).removesuffix('qdata')}scale")(module)
    weight = _stored(module, match["codes"], scales, None, _BYTES, dtype)
    linear = graph.call_function(aten.linear.default, (x, weight))
    return linear if _dtype(node) == dtype else graph.call_function(aten.to.dtype, (linear, _dtype(node)))


_RULES: Final[dict[str, Callable[[GraphModule, Node], Node | None]]] = {
    "torchao.dequantize_affine.default": _dequantize,
    "torchao.quantize_affine.default": _quantize,
    "torchao.choose_qparams_affine.default": _choose,
    "aten.mm.default": _product,
    "aten._int_mm.default": _integer_product,
    "aten.mul.Tensor": _scaled_product,
}


# ---- what stands in the graph until it is exported again ------------------------------------------------


def symmetric_ranges(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A scale for each token about zero, -128 to 127, and zeros (torchao's `MappingType.SYMMETRIC`)."""
    scales = (torch.amax(x.abs(), -1, keepdim=True) / 127.5).to(torch.float32)  # rounded as `x` is
    scales = torch.clamp(scales, min=torch.finfo(torch.float32).eps)
    return scales, torch.zeros_like(scales, dtype=torch.int64)


def integer_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`_int_mm`, which no runtime has, by float64, in which sums of products of int8 are exact."""
    return torch.mm(a.to(torch.float64), b.to(torch.float64)).to(torch.int32)


# ---- products as torchao computes them, with codes that are scaled afterwards ---------------------------


def _is_cast(node: Node) -> bool:
    return node.target is aten.to.dtype


def _is_turn(node: Node) -> bool:
    return node.target in (aten.t.default, aten.to.dtype)


def _is_codes(value: object) -> bool:
    return isinstance(value, Node) and value.op == "get_attr" and str(value.target).endswith("_qdata")


def _are_tokens(value: object) -> bool:
    return isinstance(value, Node) and str(value.target) == "quantized_decomposed.quantize_per_token.default"


(_X,) = captured("x")
_CODES = Capture("codes", _is_codes)
_TURNED = behind(_is_turn, _CODES)

_WEIGHT = op(dequantized_weight)
_OF_WEIGHT = op(aten.mm.default, _X, behind(_is_turn, _WEIGHT))

# mm(x, codes)
_OF_CODES = behind(_is_cast, op(torch.mm, _X, _TURNED))

# int_mm(q, codes) * x_scales, and the same - x_zeros * x_scales * sum(codes)
_TOKENS = Capture("tokens", _are_tokens)
_ROWS = either(_TOKENS, op(aten.reshape.default, _TOKENS, Capture("shape")))
_OF_INTEGERS = behind(_is_cast, op(aten.mul.Tensor, behind(_is_cast, op(integer_product, _ROWS, _TURNED)), ANY))
_SUMS = op(aten.mul.Tensor, ANY, behind(_is_cast, op(aten.sum.dim_IntList, _CODES, [-1])))
_WITHOUT_ZEROS = op(aten.sub.Tensor, _OF_INTEGERS, behind(_is_cast, _SUMS))

_SCALED = op(aten.mul.Tensor, either(_OF_CODES, _OF_INTEGERS, _WITHOUT_ZEROS), ANY)


# ---- weights --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Form:
    """Codes from `lowest` to `highest` are stored with `shift` added: int8 as they are, uint8 two to a byte."""

    lowest: int
    highest: int
    shift: int
    dtype: torch.dtype


_BYTES: Final = _Form(-128, 127, 0, torch.int8)

_FORMS: Final = (
    _Form(-ZERO_CODE, 15 - ZERO_CODE, ZERO_CODE, torch.uint8),
    _Form(0, 15, 0, torch.uint8),
    _BYTES,
    _Form(0, 255, -128, torch.int8),
)


def _form_of(weight: torch.Tensor, lowest: int, highest: int) -> _Form | None:
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
    """A call of `dequantized_weight` of constants, the same ones where `codes` are read again."""
    weight: torch.Tensor = referenced(module, codes)
    if _STORED not in codes.meta:  # a tied weight is stored once
        name, constants = str(codes.target).removesuffix("_qdata"), _constants(weight, scales, zero_points, form)
        codes.meta[_STORED] = StoredParameter.add(module, name, constants, weight.shape, dtype)
    stored: StoredParameter = codes.meta[_STORED]
    return replace(stored, dtype=dtype).read(module.graph)


def _constants(
    weight: torch.Tensor, scales: torch.Tensor, zero_points: torch.Tensor | None, form: _Form
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Codes, scales and zero points as they are stored."""
    codes = (weight.to(torch.int16) + form.shift).to(form.dtype)
    zeros = torch.zeros(scales.numel()) if zero_points is None else zero_points.reshape(-1)
    zeros = zeros.to(torch.int16) + form.shift  # shifted as the codes are: their difference is what counts
    is_packed = form.dtype == torch.uint8
    without = (zeros == (ZERO_CODE if is_packed else 0)).all()  # which is what `dequantized_weight` takes for them
    return pack(codes) if is_packed else codes, scales.reshape(-1).float(), None if without else zeros.to(form.dtype)


_STORED: Final = "stored"
"""Where the meta of codes has what is stored of them, a `StoredWeight`."""


def _by_rows(weight: torch.Tensor, block: Sequence[object]) -> bool:
    """Whether a scale is for a row, or a part of one."""
    whole = list(block[1:]) == list(weight.shape[1:])
    return block[0] == 1 and (whole or weight.ndim == 2) and weight.ndim >= 2


def _by_token(x: Node, block: Sequence[object]) -> bool:
    """Whether a scale is for what the last dim holds."""
    return all(size == 1 for size in block[:-1]) and block[-1] == x.meta["val"].shape[-1]


def _arguments(node: Node) -> list[Any]:
    """All arguments of a call of `quantize_affine` or `dequantize_affine`; limits are those of the codes' dtype."""
    assert isinstance(node.target, torch._ops.OpOverload)
    names = [argument.name for argument in node.target._schema.arguments]  # whose defaults have numbers for dtypes
    named: dict[str, Any] = dict.fromkeys(names) | dict(zip(names, node.args, strict=False)) | node.kwargs
    codes = torch.iinfo(named.get("input_dtype") or named["output_dtype"])
    defaults = {"quant_min": codes.min, "quant_max": codes.max, "output_dtype": torch.float32}
    return [defaults.get(name) if value is None else value for name, value in named.items()]


def _dtype(node: Node) -> torch.dtype:
    dtype: torch.dtype = node.meta["val"].dtype
    return dtype
