"""Pairs of values, from the graph and from the runtime -> a table of how far apart they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from delegraph_executorch.devtools.inspector._matching import DebugHandle, convert_to_float_tensor, find_op_names
from delegraph_executorch.devtools.inspector._values import pandas, signal_to_noise, squared_error

if TYPE_CHECKING:
    from delegraph_executorch.devtools.inspector._inspector import Inspector


IntermediateOutputMapping: TypeAlias = dict[tuple[DebugHandle, Any], tuple[DebugHandle, Any]]
"""(handles, value) of the graph -> (handles, value) of the runtime."""


class NumericalComparatorBase(ABC):
    """How far apart values are: `element_compare` says it of two, `preprocessing` may change all of them before.

    `inspector` gives the graph, for a preprocessing that has to know of quantization or layouts.
    """

    def __init__(self, inspector: Inspector | None = None) -> None:
        self._inspector = inspector

    @property
    def inspector(self) -> Inspector | None:
        """The Inspector that compares; it sets itself."""
        return self._inspector

    @inspector.setter
    def inspector(self, value: Inspector | None) -> None:
        self._inspector = value

    def preprocessing(self, mapping: IntermediateOutputMapping) -> IntermediateOutputMapping:
        """The pairs to compare; as they are, unless a subclass changes them (layouts, dequantization)."""
        return mapping

    @abstractmethod
    def element_compare(self, a: Any, b: Any) -> float:
        """The gap between a value of the graph and one of the runtime."""

    def compare(
        self,
        mapping: IntermediateOutputMapping,
        aot_debug_handle_to_op_names: Mapping[DebugHandle, Sequence[str]],
        runtime_debug_handle_to_op_names: Mapping[DebugHandle, Sequence[str]],
    ) -> Any:
        """A pandas DataFrame with a row for each pair: handles, names and values on both sides, and the gap.

        Raises `TypeError` or `ValueError` for what `preprocessing` gives if it is no such mapping.
        """
        pairs = self.preprocessing(mapping)
        self._validate_preprocessing_output(pairs)
        rows = [
            {
                "aot_debug_handle": aot_handle,
                "aot_ops": find_op_names(aot_handle, aot_debug_handle_to_op_names),
                "aot_intermediate_output": expected,
                "runtime_ops": find_op_names(runtime_handle, runtime_debug_handle_to_op_names),
                "runtime_debug_handle": runtime_handle,
                "runtime_intermediate_output": given,
                "gap": self._compare_intermediate_outputs(expected, given),
            }
            for (aot_handle, expected), (runtime_handle, given) in pairs.items()
            if expected is not None and given is not None and not _is_several(expected)
        ]
        return pandas().DataFrame(rows)

    @staticmethod
    def _validate_preprocessing_output(processed_mapping: Any) -> None:
        if not isinstance(processed_mapping, dict):
            raise TypeError(f"preprocessing() must return a dict, got {type(processed_mapping).__name__}; {_EXPECTED}")
        for key, value in processed_mapping.items():
            for what, pair, side in (("key", key, "AOT"), ("value", value, "runtime")):
                if not isinstance(pair, tuple) or len(pair) != 2:
                    raise ValueError(f"Invalid {what} format in preprocessed mapping: {pair}; {_EXPECTED}")
                if not isinstance(pair[0], tuple) or not all(isinstance(handle, int) for handle in pair[0]):
                    raise ValueError(f"Invalid {side} debug handle in {what}: {pair[0]}; {_EXPECTED}")

    def _compare_intermediate_outputs(self, a: Any, b: Any) -> list[float]:
        if isinstance(a, Sequence) is not isinstance(b, Sequence):
            raise ValueError(f"Both inputs 'a' ({a}) and 'b' ({b}) must be sequences or both must be non-sequences.")
        if not isinstance(a, Sequence):
            return [self.element_compare(a, b)]
        if len(a) != len(b):
            raise ValueError(f"Sequences 'a' ({a}) and 'b' ({b}) must have the same length: {len(a)} and {len(b)}.")
        return [self.element_compare(one, other) for one, other in zip(a, b, strict=True)]


class TensorComparator(NumericalComparatorBase):
    """The gap of two tensors or numbers, as tensors of float64; `metric` gives it as a tensor of one element."""

    metric: ClassVar[staticmethod[[Any, Any], Any]]

    def element_compare(self, a: Any, b: Any) -> float:
        """The gap of two tensors or numbers. Raises `ValueError` for what is neither, or for shapes that do not fit."""
        reference, value = convert_to_float_tensor(a), convert_to_float_tensor(b)
        try:
            return float(type(self).metric(reference, value))
        except RuntimeError as error:
            raise ValueError(f"{type(self).__name__}: the tensors cannot be compared: {error}") from error


_EXPECTED = "expected {(debug handles, value): (debug handles, value)}, debug handles a tuple of int"


def _is_several(value: Any) -> bool:
    """Several tensors: the runtime has none of those to compare with."""
    return isinstance(value, Sequence) and len(value) > 1


class L1Comparator(TensorComparator):
    """The gap is the sum of the absolute differences."""

    metric = staticmethod(lambda reference, value: (reference - value).abs().sum())


class MSEComparator(TensorComparator):
    """The gap is the mean of the squared differences."""

    metric = staticmethod(squared_error)


class SNRComparator(TensorComparator):
    """The gap is ten times the logarithm of the signal's power over the difference's, in dB."""

    metric = staticmethod(signal_to_noise)
