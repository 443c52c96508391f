"""A program -> the same with everything of each method there twice, so that its delegates have independent ones beside.

forward(x) -> y            forward(x, x') -> y, y'
y = delegate 0(x)          y = delegate 0(x); y' = delegate 1(x')
"""

from __future__ import annotations

from dataclasses import replace

from delegraph.program.schema import (
    AllocationDetails,
    Chain,
    ContainerMetadata,
    DelegateCall,
    ExecutionPlan,
    FreeCall,
    Instruction,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    OptionalTensorList,
    Program,
    Tensor,
    TensorList,
    Value,
)

__all__ = ["doubled"]


def doubled(program: Program) -> Program:
    """The copies share constants and blobs, and no memory that a run writes."""
    # The core's own data say how many inputs there are, and what they are called.
    named = {key: data for key, data in program.named_data.items() if not key.startswith("delegraph.")}
    plans = tuple(_doubled(plan) if plan.chains else plan for plan in program.execution_plan)
    return replace(program, execution_plan=plans, named_data=named)


def _doubled(plan: ExecutionPlan) -> ExecutionPlan:
    by, sizes = len(plan.values), plan.non_const_buffer_sizes
    return replace(
        plan,
        values=(*plan.values, *(_moved(value, by, len(sizes) - 1) for value in plan.values)),
        inputs=(*plan.inputs, *(index + by for index in plan.inputs)),
        outputs=(*plan.outputs, *(index + by for index in plan.outputs)),
        chains=tuple(_chain(chain, by, len(plan.delegates)) for chain in plan.chains),
        delegates=plan.delegates * 2,
        non_const_buffer_sizes=(*sizes, *sizes[1:]),
        container_meta_type=ContainerMetadata(),
    )


def _moved(value: Value, by: int, memories: int) -> Value:
    if isinstance(value, Tensor) and (place := value.allocation_info) is not None:
        return replace(value, allocation_info=AllocationDetails(place.memory_id + memories, place.memory_offset))
    if isinstance(value, IntList | TensorList | OptionalTensorList):
        return replace(value, items=tuple(item + by if item >= 0 else item for item in value.items))
    return value


def _chain(chain: Chain, by: int, delegates: int) -> Chain:
    further = (_instruction(call, by, delegates, len(chain.instructions)) for call in chain.instructions)
    return Chain((*chain.instructions, *further))


def _instruction(call: Instruction, by: int, delegates: int, instructions: int) -> Instruction:
    match call:
        case KernelCall(op_index=operator, args=args):
            return KernelCall(operator, tuple(index + by for index in args))
        case DelegateCall(delegate_index=index, args=args):
            return DelegateCall(index + delegates, tuple(index + by for index in args))
        case MoveCall(move_from=source, move_to=target):
            return MoveCall(source + by, target + by)
        case JumpFalseCall(cond_value_index=condition, destination_instruction=destination):
            return JumpFalseCall(condition + by, destination + instructions)
        case FreeCall(value_index=index):
            return FreeCall(index + by)
    raise AssertionError(f"no instruction: {call!r}")
