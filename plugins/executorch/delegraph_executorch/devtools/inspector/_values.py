"""What an ETDump holds, as tensors and numbers, in units of time; how far apart values are; tables of them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from importlib import import_module
from typing import IO, Any, Final, TypeAlias

import torch

from delegraph.program.etdump import DebugEvent, Event, ProfileEvent, Tensor, Value
from delegraph.program.schema import ScalarType
from delegraph_executorch.exir.tensor import enum_to_scalar_map


class TimeScale(Enum):
    """The unit of a clock."""

    NS = "ns"
    US = "us"
    MS = "ms"
    S = "s"
    CYCLES = "cycles"


TIME_SCALE_DICT: Final = {
    TimeScale.NS: 1_000_000_000,
    TimeScale.US: 1_000_000,
    TimeScale.MS: 1000,
    TimeScale.S: 1,
    TimeScale.CYCLES: 1,
}
"""How many of them are a second; cycles are only compared with cycles."""


def calculate_time_scale_factor(source_time_scale: TimeScale, target_time_scale: TimeScale) -> float:
    """How many of `source_time_scale` are one of `target_time_scale`."""
    return TIME_SCALE_DICT[source_time_scale] / TIME_SCALE_DICT[target_time_scale]


def pandas() -> Any:
    """The module. Raises `ImportError` that says what to install."""
    return _of_the_extra("pandas")


def display_or_print_df(df: Any, file: IO[str] | None = None) -> None:
    """Show a table: in a notebook as one there, else as text on `file` (None: standard output)."""
    notebook = sys.modules.get("IPython")
    if notebook is not None and notebook.get_ipython() is not None and file is None:
        notebook.display.display(df)
        return
    print(_of_the_extra("tabulate").tabulate(df, headers="keys", tablefmt="fancy_grid"), file=file)


def _of_the_extra(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f'tables need {name}: pip install "delegraph-executorch[devtools]"') from error


InferenceOutput: TypeAlias = Any
"""A tensor, a list of tensors, a number or None."""
ProgramOutput: TypeAlias = list[InferenceOutput]

_DTYPES: Final = {code: dtype for code, dtype in enum_to_scalar_map.items() if not code.name.startswith(("Q", "BITS"))}
_DTYPES[ScalarType.BITS16] = torch.uint16


def inflate_runtime_output(value: Value, output_buffer: bytes | None) -> InferenceOutput:
    """What `value` holds. Tensors are read from the debug buffer; without one they are zeros of their shape.

    Raises `ValueError` where it does not hold what it says, and for a tensor that ends behind the buffer.
    """
    field = _FIELDS.get(value.val)
    if field is None:
        return None
    held = getattr(value, field)
    if held is None:
        raise ValueError(f"a value of type {value.val} has no {field}; the ETDump is damaged")
    if isinstance(held, Tensor):
        return _tensor(held, output_buffer)
    if field == "tensor_list":
        return [_tensor(tensor, output_buffer) for tensor in held.tensors]
    return getattr(held, held.__slots__[0])


_FIELDS: Final = {
    "Int": "int_value",
    "Bool": "bool_value",
    "Float": "float_value",
    "Double": "double_value",
    "Tensor": "tensor",
    "TensorList": "tensor_list",
}


def _tensor(tensor: Tensor, buffer: bytes | None) -> torch.Tensor:
    if tensor.offset is None:
        raise ValueError("a tensor has no offset; the ETDump is damaged")
    dtype, sizes = _DTYPES.get(tensor.scalar_type), list(tensor.sizes)
    if dtype is None:
        raise ValueError(f"torch has no dtype for {tensor.scalar_type.name}")
    count = math.prod(sizes)
    if buffer is None or not count:
        return torch.zeros(sizes, dtype=dtype)
    data = bytearray(buffer[tensor.offset : tensor.offset + count * dtype.itemsize])
    if len(data) < count * dtype.itemsize:
        raise ValueError(
            f"a tensor lies at byte {tensor.offset} of a debug buffer of {len(buffer)} bytes; does it belong to this"
            " ETDump?"
        )
    return torch.frombuffer(data, dtype=dtype).view(sizes)


def is_inference_output_equal(output1: InferenceOutput, output2: InferenceOutput) -> bool:
    """Whether two values are the same, tensors bit by bit."""
    if isinstance(output1, torch.Tensor) and isinstance(output2, torch.Tensor):
        return torch.equal(output1, output2)
    if isinstance(output1, list) and isinstance(output2, list):
        return len(output1) == len(output2) and all(map(is_inference_output_equal, output1, output2))
    return type(output1) is type(output2) and bool(output1 == output2)


def verify_debug_data_equivalence(existing_data: Sequence[Any], new_data: Sequence[Any]) -> None:
    """Nothing, or an `AssertionError` if two runs gave other outputs."""
    assert len(existing_data) == len(new_data), (
        f"one run gave {len(existing_data)} outputs, another {len(new_data)}; give each input a bundled input index"
    )
    for position, (one, other) in enumerate(zip(existing_data, new_data, strict=True)):
        assert is_inference_output_equal(one, other), (
            f"output {position} differs between runs of one input: {one}, {other}"
        )


def is_debug_output(value: Value) -> bool:
    """Whether this is an output of the program."""
    return value.output is not None and value.output.bool_val


def find_populated_event(event: Event) -> ProfileEvent | DebugEvent:
    """The times or the value that `event` is about. Raises `ValueError` if it is neither."""
    found = event.profile_event or event.debug_event
    if found is None:
        raise ValueError("Unable to find populated event: it has neither times nor a value")
    return found


Metric = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
DIGITS: Final = 2


def squared_error(reference: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The mean of the squared differences."""
    return (reference - value).square().mean()


def signal_to_noise(reference: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Ten times the logarithm of the signal's power over the difference's, in dB: inf where nothing differs."""
    return 10 * torch.log10(reference.square().mean() / squared_error(reference, value))


def calculate_mse(ref_values: Sequence[Any], values: Sequence[Any]) -> list[float | None]:
    """The mean squared error of each output; None for what is no tensor."""
    return _each(squared_error, ref_values, values)


def calculate_snr(ref_values: Sequence[Any], values: Sequence[Any]) -> list[float | None]:
    """The signal-to-noise ratio of each output, in dB; None for what is no tensor."""
    return _each(signal_to_noise, ref_values, values)


def calculate_cosine_similarity(ref_values: Sequence[Any], values: Sequence[Any]) -> list[float | None]:
    """The cosine of the angle between each two outputs; None for what is no tensor. Raises `ValueError` for shapes."""
    return _each(_cosine, ref_values, values)


def _cosine(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if a.shape != b.shape:
        raise ValueError("Input tensors must have the same shape")
    cosine: torch.Tensor = (a * b).sum() / (a.norm() * b.norm())
    return cosine


def _each(metric: Metric, references: Sequence[Any], values: Sequence[Any]) -> list[float | None]:
    return [
        round(metric(one.to(torch.float32), other.to(torch.float32)).item(), DIGITS)
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
        else None
        for one, other in zip(references, values, strict=False)
    ]


_METRICS: Final = {"snr": calculate_snr, "mse": calculate_mse, "cosine_similarity": calculate_cosine_similarity}


def compare_results(
    reference_output: Sequence[Any], run_output: Sequence[Any], metrics: Sequence[str] | None = None, plot: bool = False
) -> dict[str, list[float | None]]:
    """Each metric (None: all) of each output; printed, or with `plot` drawn by matplotlib.

    Raises `ValueError` for a metric that there is not.
    """
    if unknown := set(metrics or ()) - set(_METRICS):
        raise ValueError(f"no metric {', '.join(sorted(unknown))}; there are {', '.join(_METRICS)}")
    results = {
        name: metric(reference_output, run_output)
        for name, metric in _METRICS.items()
        if metrics is None or name in metrics
    }
    for name, values in results.items():
        if plot:
            plot_metric(values, name)
        else:
            rows = "".join(
                f"{index:<5}{'none' if value is None else f'{value:.5f}':>8}\n" for index, value in enumerate(values)
            )
            print(f"{name}\n{'-' * 20}\n{rows}\n")
    return results


def plot_metric(result: Sequence[float | None], metric_name: str) -> None:
    """Draw a bar for each output, into `<metric>_output_plot.png` as well. Raises `ImportError` without matplotlib."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 6))
    bars = axes.bar(range(len(result)), [value or 0.0 for value in result], width=0.5)
    axes.bar_label(bars)
    axes.set(xlabel="Output value index", ylabel=metric_name, title=f"Metric {metric_name}")
    axes.grid(axis="y")
    figure.savefig(f"{metric_name}_output_plot.png")
    plt.show()
