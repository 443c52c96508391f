"""Operators of torch's database: taken whole and right where they are claimed, and right wherever they are taken.

claimed        passed: taken whole, and right;   failed: left, or wrong
not claimed    declined: left, with a reason;    unclaimed: it would pass;    failed: taken, and wrong
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, TypeAlias

from torch.export import ExportedProgram

import delegraph
from delegraph import Lowered
from delegraph.errors import MissingKernel, MissingOutVariant
from delegraph_testkit.bench import Bench, Facts
from delegraph_testkit.lowering import (
    asked_for,
    expected_calls,
    facts_of,
    kernel_facts,
    lowered_onto,
    quantized_as_claimed,
)
from delegraph_testkit.models import Example
from delegraph_testkit.opaque import kernel_order
from delegraph_testkit.operator_samples import operator_examples
from delegraph_testkit.outcomes import Declined, Unclaimed
from delegraph_testkit.running import check_call
from delegraph_testkit.subject import Kind

__all__ = ["operator_is_right"]

Programs: TypeAlias = Mapping[str, ExportedProgram] | None
"""An example's, quantized; None where it is lowered in float."""


def operator_is_right(bench: Bench, entry: str, dtype: str) -> None:
    """Samples of the operator are taken whole, and give torch's results."""
    claimed = bench.subject.claims.has(entry, dtype)
    told = [_try(bench, example, claimed) for example in operator_examples(entry, dtype)]
    left = [facts for facts in told if not facts.whole]
    if claimed:
        assert not left, f"{entry} is claimed for {dtype}, and not taken whole: {left[0].why_left or 'nothing is left'}"
    elif left:
        raise Declined(left[0].why_left)
    else:
        raise Unclaimed(f"taken whole and right: {entry} may be claimed for {dtype}")


def _try(bench: Bench, example: Example, claimed: bool) -> Facts:
    """The facts that lowering told of an example; its results are torch's as far as anything of it was taken."""
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # torch's own, of its deprecated operators
            programs = quantized_as_claimed(bench.subject, example)
            lowered = _lowered(bench, example, programs)
    except (MissingKernel, MissingOutVariant) as error:
        if claimed:
            raise AssertionError(f"it is claimed, and not taken whole: {error}") from error
        raise Declined(f"something is left that the kit has no kernels for: {error}") from error
    by_kernels = bench.subject.kind is Kind.KERNELS
    facts = kernel_facts(bytes(lowered), bench.subject.name, ["forward"]) if by_kernels else facts_of(lowered, example)
    assert not facts.refused, f"the partitioner is to decline what its backend refuses: {facts.refused[0]}"
    if facts.taken:
        _check(bench, example, lowered, programs)
    return facts


def _lowered(bench: Bench, example: Example, programs: Programs) -> Lowered:
    if bench.subject.kind is Kind.KERNELS:
        return lowered_onto(example, [], kernels=_order(bench))
    return lowered_onto(example, [asked_for(bench.subject)], programs)


def _order(bench: Bench) -> tuple[Any, ...]:
    return kernel_order((bench.subject.name,) if bench.subject.kind is Kind.KERNELS else ())


def _check(bench: Bench, example: Example, lowered: Lowered, programs: Programs) -> None:
    module = delegraph.load(bytes(lowered), kernels=_order(bench), check=True)
    (call,) = expected_calls(example, programs)
    shapes = ", ".join(f"{array.dtype.name}{list(array.shape)}" for array in call.inputs)
    check_call(bench, call, module["forward"].method.execute(call.inputs), f"of {shapes}")
