"""Plan -> a method's inputs and outputs, without loading it. As ExecuTorch's `runtime/executor/method_meta.h`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from delegraph.errors import InvalidArgument
from delegraph.lazy_dataclass import dataclass
from delegraph.program.contract import Dims, MethodContract
from delegraph.program.devices import CPU, Device, memory_devices, tagged_device
from delegraph.program.dtypes import nbytes
from delegraph.program.schema import ExecutionPlan, ScalarType, Tensor, TensorShapeDynamism, Value
from delegraph.runtime.values.values import attribute_name

if TYPE_CHECKING:
    from delegraph.program.user_metadata import UserMetadata


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor input, output or attribute. The accessors are calls, as in ExecuTorch."""

    record: Tensor
    dims: Dims | None = None
    """The sizes that each dim may have, with its name; None where the file says nothing but `sizes`."""

    def sizes(self) -> tuple[int, ...]:
        """The shape; upper bounds if `is_dynamic`."""
        return self.record.sizes

    def dim_order(self) -> tuple[int, ...]:
        """The dims in their order in memory, outer to inner."""
        return self.record.dim_order

    def dtype(self) -> ScalarType:
        """The dtype, as PyTorch's code; `numpy_dtype` in `delegraph.program.dtypes` gives NumPy's."""
        return self.record.scalar_type

    def is_memory_planned(self) -> bool:
        """Whether the tensor has a place in planned memory; if not, inputs are shared with the caller."""
        return self.record.allocation_info is not None or self.record.data_buffer_idx > 0

    def is_dynamic(self) -> bool:
        """Whether `sizes` are upper bounds."""
        return self.record.shape_dynamism is not TensorShapeDynamism.STATIC

    def device(self) -> Device:
        """Where a caller may have it: a tensor of an input's device is taken as it is."""
        return tagged_device(self.record)

    def nbytes(self) -> int:
        """Bytes at `sizes`."""
        return nbytes(self.record.scalar_type, self.record.sizes)

    def __repr__(self) -> str:
        dynamic = ", dynamic" if self.is_dynamic() else ""
        planned = ", planned" if self.is_memory_planned() else ""
        sizes = ", ".join(map(str, self.dims or self.sizes()))
        return f"TensorInfo({self.dtype().name.lower()}[{sizes}]{dynamic}{planned})"


class MethodMeta:
    """Inputs, outputs and attributes of a method. The accessors are calls, as in ExecuTorch."""

    def __init__(
        self,
        plan: ExecutionPlan,
        contract: MethodContract | None = None,
        user_metadata: Callable[[], UserMetadata] = dict,
    ) -> None:
        self._plan = plan
        self._user_metadata = user_metadata
        self._contract = contract or MethodContract()
        self._attributes = [value for value in plan.values if isinstance(value, Tensor) and attribute_name(value)]

    def name(self) -> str:
        """The method's name, such as "forward"."""
        return self._plan.name

    def num_inputs(self) -> int:
        """How many inputs `Method.execute` takes."""
        return len(self._plan.inputs)

    def num_outputs(self) -> int:
        """How many outputs `Method.execute` gives."""
        return len(self._plan.outputs)

    def num_attributes(self) -> int:
        """How many named buffers `Method.get_attribute` has."""
        return len(self._attributes)

    def input_value(self, index: int) -> Value:
        """The record of any input. Raises `InvalidArgument` if there is no such input."""
        return self._plan.values[_at(self._plan.inputs, index, "input")]

    def output_value(self, index: int) -> Value:
        """The record of any output. Raises `InvalidArgument` if there is no such output."""
        return self._plan.values[_at(self._plan.outputs, index, "output")]

    def input_tensor_meta(self, index: int) -> TensorInfo:
        """A tensor input. Raises `InvalidArgument` if there is no such input or it is no tensor."""
        return _tensor_info(self.input_value(index), "input", index, self._contract.inputs)

    def output_tensor_meta(self, index: int) -> TensorInfo:
        """A tensor output. Raises `InvalidArgument` if there is no such output or it is no tensor."""
        return _tensor_info(self.output_value(index), "output", index, self._contract.outputs)

    def attribute_tensor_meta(self, index: int) -> TensorInfo:
        """A named buffer. Raises `InvalidArgument` if there is no such attribute."""
        _at(self._attributes, index, "attribute")
        return TensorInfo(self._attributes[index])

    def attribute_names(self) -> tuple[str, ...]:
        """The fully qualified names of the attributes, in order."""
        return tuple(attribute_name(record) for record in self._attributes)

    def num_backends(self) -> int:
        """How many different backends the method needs."""
        return len({delegate.id for delegate in self._plan.delegates})

    def uses_backend(self, backend_id: str) -> bool:
        """Whether the method has a delegate of that backend."""
        return any(delegate.id == backend_id for delegate in self._plan.delegates)

    def num_memory_planned_buffers(self) -> int:
        """How many planned buffers the method needs."""
        return len(self._plan.non_const_buffer_sizes) - 1

    def memory_planned_buffer_size(self, index: int) -> int:
        """Bytes of planned buffer `index`, which counts from 0 (its `memory_id` is one more)."""
        return _at(self._plan.non_const_buffer_sizes[1:], index, "planned buffer")

    def memory_planned_buffer_device(self, index: int) -> Device:
        """Where planned buffer `index` lies."""
        self.memory_planned_buffer_size(index)
        return memory_devices(self._plan.non_const_buffer_device).get(index + 1, CPU)

    def user_metadata(self) -> UserMetadata:
        """The words of `lower(…, metadata=…)` about the model, lists as tuples: it is of all methods alike.

        Raises `InvalidProgram` if it is damaged."""
        return self._user_metadata()

    def __repr__(self) -> str:
        inputs = ", ".join(_text(self.input_value(i), i, self._contract.inputs) for i in range(self.num_inputs()))
        outputs = ", ".join(_text(self.output_value(i), i, self._contract.outputs) for i in range(self.num_outputs()))
        return f"MethodMeta({self.name()!r}, inputs=[{inputs}], outputs=[{outputs}])"

    def _repr_html_(self) -> str:
        """The HTML that notebooks show."""
        from delegraph.program.text.html import method_html

        return method_html(self._plan, self._contract)


def _at(items: tuple[int, ...] | list[Tensor], index: int, what: str) -> int:
    if not 0 <= index < len(items):
        raise InvalidArgument(f"there is no {what} {index}; the method has {len(items)}")
    item = items[index]
    return item if isinstance(item, int) else index


def _tensor_info(value: Value, what: str, index: int, dims: Sequence[Dims | None]) -> TensorInfo:
    if not isinstance(value, Tensor):
        raise InvalidArgument(f"{what} {index} is no tensor but {value!r}")
    return TensorInfo(value, dims[index] if index < len(dims) else None)


def _text(value: Value, index: int, dims: Sequence[Dims | None]) -> str:
    return repr(_tensor_info(value, "", index, dims)) if isinstance(value, Tensor) else repr(value)
