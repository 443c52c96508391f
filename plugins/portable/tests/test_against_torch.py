"""Kernels against torch on the samples of torch's own operator database.

Each entry of the database is run in torch; the ATen operators that it calls are recorded, and each that has a kernel
here is compared with it, in every way in which the runtime may call a kernel. Expected values of float16 and bfloat16
are torch's of float32, rounded once: what the kernels promise, while some of torch's own round more often.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import pytest
import torch
from plugins.portable.tests.oracle import Oracle
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from delegraph_portable import library

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch's testing modules warn when imported
    from torch.testing._internal.common_methods_invocations import op_db

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool, torch.uint8)
HALVES = (torch.float16, torch.bfloat16)
SAMPLES = 8  # of float32, taken evenly from an entry's list
FEW_SAMPLES = 3  # of the other dtypes
CALLS = 3  # of one sample: entries that call an operator over and over add nothing
LARGEST = 100_000  # elements of a tensor

OPINFOS = {
    "__getitem__": "index.Tensor_out",
    "_native_batch_norm_legit": "_native_batch_norm_legit.out",
    "_upsample_bilinear2d_aa": "_upsample_bilinear2d_aa.out",
    "abs": "abs.out",
    "acos": "acos.out",
    "acosh": "acosh.out",
    "add": "add.out",
    "addmm": "addmm.out",
    "alias_copy": "alias_copy.out",
    "amax": "amax.out",
    "amin": "amin.out",
    "any": "any.all_out any.dims_out any.out",
    "arange": "arange.out arange.start_out",
    "argmax": "argmax.out",
    "argmin": "argmin.out",
    "as_strided_copy": "as_strided_copy.out",
    "asin": "asin.out",
    "asinh": "asinh.out",
    "atan": "atan.out",
    "atan2": "atan2.out",
    "atanh": "atanh.out",
    "bitwise_and": "bitwise_and.Tensor_out",
    "bitwise_left_shift": "bitwise_left_shift.Tensor_out",
    "bitwise_not": "bitwise_not.out",
    "bitwise_or": "bitwise_or.Tensor_out",
    "bitwise_right_shift": "bitwise_right_shift.Tensor_out",
    "bitwise_xor": "bitwise_xor.Tensor_out",
    "bmm": "bmm.out",
    "cat": "cat.out",
    "cdist": "_cdist_forward.out",
    "ceil": "ceil.out",
    "clamp": "clamp.Tensor_out",
    "clone": "clone.out",
    "constant_pad_nd": "constant_pad_nd.out",
    "cos": "cos.out",
    "cosh": "cosh.out",
    "cumsum": "cumsum.out",
    "diagonal_copy": "diagonal_copy.out",
    "div": "div.out div.out_mode",
    "eq": "eq.Tensor_out",
    "erf": "erf.out",
    "exp": "exp.out",
    "expand_copy": "expand_copy.out",
    "expm1": "expm1.out",
    "fft.irfftn": "_fft_c2r.out",
    "fft.rfftn": "_fft_r2c.out",
    "fill": "fill.Scalar_out",
    "flip": "flip.out",
    "floor": "floor.out",
    "floor_divide": "floor_divide.out",
    "fmod": "fmod.Tensor_out",
    "full": "full.out",
    "full_like": "full_like.out",
    "gather": "gather.out",
    "ge": "ge.Tensor_out",
    "grid_sampler_2d": "grid_sampler_2d.out",
    "gt": "gt.Tensor_out",
    "index_put": "index_put.out",
    "index_select": "index_select.out",
    "isinf": "isinf.out",
    "isnan": "isnan.out",
    "le": "le.Tensor_out",
    "log": "log.out",
    "log10": "log10.out",
    "log1p": "log1p.out",
    "log2": "log2.out",
    "log_softmax": "_log_softmax.out",
    "logical_and": "logical_and.out",
    "logical_not": "logical_not.out",
    "logical_or": "logical_or.out",
    "logical_xor": "logical_xor.out",
    "logit": "logit.out",
    "lt": "lt.Tensor_out",
    "max": "max.dim_max max.unary_out",
    "max_pool2d_with_indices_backward": "max_pool2d_with_indices_backward.grad_input",
    "maximum": "maximum.out",
    "mean": "mean.dtype_out mean.out",
    "min": "min.dim_min min.unary_out",
    "minimum": "minimum.out",
    "mm": "mm.out",
    "mul": "mul.out",
    "narrow_copy": "narrow_copy.out",
    "native_group_norm": "native_group_norm.out",
    "native_layer_norm": "native_layer_norm.out",
    "ne": "ne.Tensor_out",
    "neg": "neg.out",
    "nn.functional.adaptive_avg_pool2d": "_adaptive_avg_pool2d.out",
    "nn.functional.avg_pool2d": "avg_pool2d.out",
    "nn.functional.conv1d": "convolution.out",
    "nn.functional.conv2d": "convolution.out",
    "nn.functional.conv3d": "convolution.out",
    "nn.functional.conv_transpose1d": "convolution.out",
    "nn.functional.conv_transpose2d": "convolution.out",
    "nn.functional.conv_transpose3d": "convolution.out",
    "nn.functional.elu": "elu.out",
    "nn.functional.embedding": "embedding.out",
    "nn.functional.gelu": "gelu.out",
    "nn.functional.glu": "glu.out",
    "nn.functional.group_norm": "native_group_norm.out",
    "nn.functional.hardtanh": "hardtanh.out",
    "nn.functional.layer_norm": "native_layer_norm.out",
    "nn.functional.leaky_relu": "leaky_relu.out",
    "nn.functional.max_pool2d": "max_pool2d_with_indices.out",
    "nn.functional.pad": "reflection_pad1d.out reflection_pad2d.out replication_pad1d.out replication_pad2d.out",
    "nn.functional.pdist": "_pdist_forward.out",
    "nn.functional.pixel_shuffle": "pixel_shuffle.out",
    "nn.functional.pixel_unshuffle": "pixel_unshuffle.out",
    "nn.functional.relu": "relu.out",
    "nonzero": "nonzero.out",
    "ones": "ones.out",
    "permute_copy": "permute_copy.out",
    "pow": "pow.Tensor_Tensor_out",
    "prod": "prod.int_out prod.out",
    "reciprocal": "reciprocal.out",
    "remainder": "remainder.Tensor_out",
    "repeat": "repeat.out",
    "repeat_interleave": "repeat_interleave.Tensor_out",
    "roll": "roll.out",
    "round": "round.out",
    "rsqrt": "rsqrt.out",
    "scalar_tensor": "scalar_tensor.out",
    "scatter": "scatter.src_out",
    "scatter_add": "scatter_add.out",
    "select": "select_copy.int_out",
    "select_scatter": "select_scatter.out",
    "sigmoid": "sigmoid.out",
    "sign": "sign.out",
    "sin": "sin.out",
    "sinh": "sinh.out",
    "slice": "slice_copy.Tensor_out",
    "slice_scatter": "slice_scatter.out",
    "softmax": "_softmax.out",
    "split": "split_copy.Tensor_out",
    "split_with_sizes_copy": "split_with_sizes_copy.out",
    "sqrt": "sqrt.out",
    "squeeze": "squeeze_copy.dims_out",
    "squeeze_copy": "squeeze_copy.dim_out",
    "stack": "stack.out",
    "sub": "sub.out",
    "sum": "sum.IntList_out",
    "t_copy": "t_copy.out",
    "tan": "tan.out",
    "tanh": "tanh.out",
    "transpose_copy": "transpose_copy.int_out",
    "tril": "tril.out",
    "trunc": "trunc.out",
    "unbind_copy": "unbind_copy.int_out",
    "unfold_copy": "unfold_copy.out",
    "unsqueeze_copy": "unsqueeze_copy.out",
    "var": "var.correction_out",
    "var_mean": "var_mean.correction_out",
    "view_copy": "view_copy.out",
    "where": "where.self_out",
    "zeros": "zeros.out",
}
"""Database entry -> the kernels that it must reach; `aten::` is left out."""

DATABASE = {name: [info for info in op_db if info.name == name] for name in OPINFOS}
"""An entry may have variants: rounding modes, kinds of padding."""

SUMS_OF_PRODUCTS = {f"aten::{name}.out" for name in ("addmm", "bmm", "convolution", "linear", "mm")}
"""Their rounding errors grow with the terms, not with the result, where terms cancel."""


def functional_overloads() -> dict[Any, str]:
    """Functional overload -> the kernel of its out overload. A view stands for the kernel that copies it."""
    table = {}
    for op in library.operator_names():
        namespace, _, name = op.partition("::")
        if namespace != "aten":
            continue
        base, _, overload = name.partition(".")
        out = getattr(getattr(torch.ops.aten, base), overload or "default")
        names = {argument.name for argument in out._schema.arguments if not argument.is_out}
        for packet in {base, base.removesuffix("_copy")}:
            for function in _overloads(packet):
                if _arguments(function, names) == _arguments(out, names):
                    table[function] = op
    return table


CREATION_OPTIONS = {"dtype", "layout", "device", "pin_memory"}


def _overloads(packet: str) -> Iterator[Any]:
    found = getattr(torch.ops.aten, packet, None)
    for overload in found.overloads() if found else ():
        if not any(a.is_out for a in getattr(found, overload)._schema.arguments):
            yield getattr(found, overload)


def _arguments(function: Any, names: set[str]) -> list[tuple[str, str]]:
    """Names and types of the inputs, without creation options that `names` does not have."""
    kept = (a for a in function._schema.arguments if not a.is_out)
    return [(a.name, str(a.type)) for a in kept if a.name in names or a.name not in CREATION_OPTIONS]


FUNCTIONALS = functional_overloads()


class Recorder(TorchDispatchMode):
    """Calls of operators that have a kernel: (op, function, args, kwargs, expected), all as they were at the call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        op = FUNCTIONALS.get(function)
        if op is None:
            return function(*args, **kwargs)
        before = _snapshot((args, kwargs))
        result = function(*args, **kwargs)
        self.calls.append((op, function, *before, _expected(function, before, _snapshot(result))))
        return result


def _snapshot(tree: Any) -> Any:
    return tree_map_only(torch.Tensor, _copy_with_strides, tree)


def _copy_with_strides(tensor: torch.Tensor) -> torch.Tensor:
    if 0 in tensor.stride() or tensor.numel() == 0:
        return tensor.detach().clone()
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor.detach())


def _expected(function: Any, before: Any, result: Any) -> Any:
    """`result`, but of halves what float32 gives, rounded once."""
    tensors = [t for t in torch.utils._pytree.tree_leaves((before, result)) if isinstance(t, torch.Tensor)]
    if not any(t.dtype in HALVES for t in tensors):
        return result
    args, kwargs = tree_map_only(torch.Tensor, lambda t: t.float() if t.dtype in HALVES else t.clone(), before)
    exact = function(*args, **kwargs)
    return torch.utils._pytree.tree_map(lambda e, r: e.to(r.dtype) if isinstance(e, torch.Tensor) else e, exact, result)


def _samples(info: Any, dtype: torch.dtype) -> list[Any]:
    try:
        samples = list(info.sample_inputs("cpu", dtype, requires_grad=False))
    except (NotImplementedError, RuntimeError):  # some entries make no samples of a dtype that they name
        return []
    wanted = SAMPLES if dtype == torch.float32 else FEW_SAMPLES
    return samples[:: max(1, len(samples) // wanted)][:wanted]


def _record(info: Any, sample: Any) -> list[tuple[str, Any, Any, Any, Any]]:
    recorder = Recorder()
    try:
        with recorder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            info(sample.input, *sample.args, **sample.kwargs)
    except (RuntimeError, NotImplementedError, IndexError, TypeError):
        pass  # torch refuses the sample; what it did before that counts
    return recorder.calls[:CALLS]


def _comparable(op: str, args: Any) -> bool:
    tensors = [t for t in torch.utils._pytree.tree_leaves(args) if isinstance(t, torch.Tensor)]
    if any(t.numel() > LARGEST or t.dtype == torch.complex32 for t in tensors):  # NumPy has no complex32
        return False
    # NumPy arrays carry no storage beyond the tensor, to which torch's strides may refer.
    return op != "aten::as_strided_copy.out" or all(
        t.numel() * t.itemsize == t.untyped_storage().nbytes() for t in tensors
    )


def _outputs(op: str, result: Any) -> list[Any]:
    """One entry for each output of the schema; in-place operators have none."""
    arguments = [a for a in _out_overload(op)._schema.arguments if a.is_out]
    if not arguments:
        return []
    if len(arguments) > 1:
        return list(result)
    return [list(result)] if isinstance(result, list | tuple) else [result]


def _out_overload(op: str) -> Any:
    base, _, overload = op.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def _limits(op: str, function: Callable[..., torch.Tensor], args: Sequence[Any], expected: Any) -> dict[str, float]:
    """None: torch.testing's defaults by dtype. Sums of products: 1e-6 of the largest sum of their terms' magnitudes.

    Images of uint8: 1, since torch interpolates them with weights of 16 bits.
    """
    if op == "aten::_upsample_bilinear2d_aa.out" and expected.dtype == torch.uint8:
        return {"rtol": 0, "atol": 1}
    if op not in SUMS_OF_PRODUCTS or not expected.dtype.is_floating_point or expected.dtype in HALVES:
        return {}
    terms = function(*tree_map_only(torch.Tensor, torch.abs, args))
    return {"rtol": 1.3e-6, "atol": max(1e-5, 1e-6 * float(terms.max()) if terms.numel() else 0.0)}


@pytest.mark.parametrize("name", OPINFOS)
def test_database_entry(oracle: Oracle, name: str) -> None:
    reached = set()
    for info, dtype in product(DATABASE[name], DTYPES):
        for sample in _samples(info, dtype) if dtype in info.dtypes else ():
            for op, function, args, kwargs, result in _record(info, sample):
                if not _comparable(op, args):
                    continue
                reached.add(op)
                limits = _limits(op, function, args, result)
                for mode in oracle.modes if op != "aten::as_strided_copy.out" else ("run", "bind", "constant"):
                    oracle.compare(op, args, kwargs, _outputs(op, result), mode, **limits)
    assert reached >= {f"aten::{op}" for op in OPINFOS[name].split()}
