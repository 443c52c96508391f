"""A program -> violations of its alternatives: each fits the calls of the delegate that it stands for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from delegraph.program.alternatives import AlternativeOf, alternative_of, is_alternative
from delegraph.program.checks.field_checks import Violations
from delegraph.program.checks.verify_devices import device_violations
from delegraph.program.inlining import inlined
from delegraph.program.schema import DelegateCall, ExecutionPlan, Program, Tensor, Value
from delegraph.program.walk import instructions

__all__ = ["alternative_violations"]

MAX_INLINED: Final = 2**18
"""How many values and instructions a method may come to have, in a file that has fewer: a delegate may be called often,
and each call takes those of its alternative."""


def alternative_violations(program: Program) -> Violations:
    """The violations of the alternatives of `program`, whose plans have none by themselves."""
    plans = {plan.name: plan for plan in program.execution_plan}
    most: dict[str, dict[int, int]] = defaultdict(dict)
    for index, plan in enumerate(program.execution_plan):
        if not is_alternative(plan):
            continue
        where, of = f"execution_plan[{index}]", alternative_of(plan.name)
        method = None if of is None else plans.get(of.method)
        if of is None or method is None or is_alternative(method) or of.delegate >= len(method.delegates):
            yield f"{where}.name: is {plan.name!r}, an alternative of no delegate in the program"
            continue
        violations = list(_violations(plan, method, of))
        yield from (f"{where}{violation}" for violation in violations)
        if not violations:
            calls, own = len(_calls(method, of.delegate)), _size(plan)
            most[of.method][of.delegate] = max(most[of.method].get(of.delegate, 0), calls * own)
    if most:
        limit = max(MAX_INLINED, sum(map(_size, program.execution_plan)))
        yield from _size_violations(most, limit)


def _size(plan: ExecutionPlan) -> int:
    return len(plan.values) + sum(len(chain.instructions) for chain in plan.chains)


def _size_violations(most: Mapping[str, Mapping[int, int]], limit: int) -> Violations:
    for method, sizes in most.items():
        if sum(sizes.values()) > limit:
            many = f"{sum(sizes.values())} values and instructions"
            yield f"the alternatives of method {method!r} would put {many} into it, more than {limit}"


def _violations(plan: ExecutionPlan, method: ExecutionPlan, of: AlternativeOf) -> Violations:
    borders = (*plan.inputs, *plan.outputs)
    if len(set(borders)) < len(borders):
        yield ": an input or output of an alternative is another one, too"
        return
    if len(plan.chains) != 1:
        yield f".chains: has {len(plan.chains)}; an alternative has one"
        return
    if plan.non_const_buffer_device:
        yield ".non_const_buffer_device: an alternative has no memory of its own on a device"
        return
    own = [_kind(plan.values[index]) for index in borders]
    for call in _calls(method, of.delegate):
        kinds = [_kind(method.values[index]) for index in call.args]
        if kinds != own:
            yield f": it takes and gives {own}, and a call of delegate {of.delegate} of {of.method!r} {kinds}"
            return
    if method.non_const_buffer_device:
        yield from device_violations(inlined(method, {of.delegate: plan})[0])


def _calls(method: ExecutionPlan, delegate: int) -> Sequence[DelegateCall]:
    return [
        call for _, call in instructions(method) if isinstance(call, DelegateCall) and call.delegate_index == delegate
    ]


def _kind(value: Value) -> str:
    return value.scalar_type.name.lower() if isinstance(value, Tensor) else type(value).__name__
