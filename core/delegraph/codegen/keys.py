"""A kernel's arg_meta and its entry's aliases -> the kernel keys it is registered for.

An alias has one value at a time: arguments of one alias share their dtype, and each combination of the aliases' dtypes
is a key (ExecuTorch's rule).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import product
from typing import Final, TypeAlias

import torch

from delegraph.codegen.read import ArgMeta, KernelEntry, OperatorEntry, Violation, Word

__all__ = ["Key", "alias_violations", "keys_of", "meta_violations"]

Key: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""NumPy's name of the dtype, and the dim order, of each tensor argument in the schema's order."""

DTYPES: Final[Mapping[str, str]] = {
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "UInt16": "uint16",
    "UInt32": "uint32",
    "UInt64": "uint64",
    "Half": "float16",
    "Float": "float32",
    "Double": "float64",
    "BFloat16": "bfloat16",
    "Float8_e5m2": "float8_e5m2",
    "Float8_e4m3fn": "float8_e4m3fn",
    "Float8_e5m2fnuz": "float8_e5m2fnuz",
    "Float8_e4m3fnuz": "float8_e4m3fnuz",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
    "Bool": "bool",
}
"""ScalarType's name (c10/core/ScalarType.h) -> NumPy's or ml_dtypes'."""


def alias_violations(entry: OperatorEntry) -> Iterator[Violation]:
    """Violations of an entry's aliases: names that are no dtypes, and lists that are no dim orders."""
    for name, dtypes in entry.type_alias.items():
        for dtype in dtypes:
            if dtype.text not in DTYPES:
                close = get_close_matches(dtype.text, DTYPES, n=1)
                hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(DTYPES)}"
                yield Violation(dtype.line, f"type_alias {name}: {dtype} is no dtype of a kernel; {hint}")
    for name, order in entry.dim_order_alias.items():
        if sorted(word.text for word in order) != sorted(map(str, range(len(order)))):
            text = ", ".join(map(str, order))
            yield Violation(
                order[0].line, f"dim_order_alias {name}: [{text}] is not each of 0 to {len(order) - 1} once"
            )


def meta_violations(kernel: KernelEntry, entry: OperatorEntry, schema: torch.FunctionSchema) -> Iterator[Violation]:
    """Violations of a kernel's arg_meta: tensor arguments that it lacks, other names, and unknown aliases."""
    meta = kernel.arg_meta or ()
    tensors = _tensors(schema)
    named = {item.argument.text for item in meta}
    missing = [name for name, is_optional in tensors.items() if not is_optional and name not in named]
    if kernel.arg_meta is not None and missing:
        yield Violation(kernel.line, f"arg_meta says nothing of {', '.join(missing)} of {schema}")
    for arg in meta:
        if arg.argument.text not in tensors:
            yield Violation(
                arg.argument.line, f"arg_meta names {arg.argument}, which is no tensor argument of {schema}"
            )
        for alias, kind, known in _aliases(arg, entry):
            if alias.text not in known:
                choices = ", ".join(known) or "there is none"
                yield Violation(alias.line, f"arg_meta of {arg.argument}: unknown {kind} {alias} ({choices})")


def keys_of(kernel: KernelEntry, entry: OperatorEntry, schema: torch.FunctionSchema) -> list[Key | None]:
    """Every key of a sound kernel; [None] of a fallback."""
    if kernel.arg_meta is None:
        return [None]
    by_name = {arg.argument.text: arg for arg in kernel.arg_meta}
    meta = [by_name[name] for name in _tensors(schema) if name in by_name]
    aliases = list(dict.fromkeys(arg.type_alias.text for arg in meta))
    keys: list[Key | None] = []
    for dtypes in product(*(entry.type_alias[alias] for alias in aliases)):
        dtype = {alias: DTYPES[word.text] for alias, word in zip(aliases, dtypes, strict=True)}
        keys.append(tuple((dtype[arg.type_alias.text], _order(arg, entry)) for arg in meta))
    return keys


def _aliases(arg: ArgMeta, entry: OperatorEntry) -> list[tuple[Word, str, Mapping[str, object]]]:
    return [
        (arg.type_alias, "type_alias", entry.type_alias),
        (arg.dim_order_alias, "dim_order_alias", entry.dim_order_alias),
    ]


def _order(arg: ArgMeta, entry: OperatorEntry) -> tuple[int, ...]:
    return tuple(int(word.text) for word in entry.dim_order_alias[arg.dim_order_alias.text])


def _tensors(schema: torch.FunctionSchema) -> dict[str, bool]:
    """The arguments that have a place in a kernel key, and whether a call may have None there: no lists."""
    kinds = {"Tensor": False, "Optional[Tensor]": True}
    return {a.name: kinds[str(a.type)] for a in schema.arguments if str(a.type) in kinds}
