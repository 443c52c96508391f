"""Blob -> OpenVINO model with its weights -> compiled for a device, now or for an earlier load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import DelegateInvalidCompatibility, NotSupported
from delegraph.interfaces import BackendCache, Buffer
from delegraph_openvino.blob import CODES, WEIGHT, Blob, Weight, damaged, weight_data
from delegraph_openvino.engine import openvino
from delegraph_openvino.options import OpenVinoOptions
from delegraph_openvino.runtime.saturation import IN_FLOAT, products_saturate
from delegraph_openvino.runtime.tensors import codes_over, numpy_dtype, tensor_over

__all__ = ["open_model"]


def open_model(
    core: openvino.Core,
    blob: Blob,
    named_data: Mapping[str, Buffer],
    options: OpenVinoOptions,
    cache: BackendCache,
    change: Callable[[openvino.Model], object] = lambda model: None,
) -> tuple[openvino.CompiledModel, tuple[NDArray[Any], ...]]:
    """The compiled model of a blob, out of the cache where it is there; and the memory that it continues to read.

    `change` gets the model with its weights, before it is compiled: none but one for which there is no cache."""
    weights = tuple(_array(weight, blob, named_data) for weight in blob.weights)
    constants = np.frombuffer(blob.bin, np.uint8)
    read_model = core.read_model  # outside of `try`: where the process was forked, this says so
    try:
        model = read_model(bytes(blob.xml).decode(), tensor_over(constants))
        _put_weights(model, blob, weights)
        change(model)
    except (RuntimeError, ValueError) as error:
        raise DelegateInvalidCompatibility(
            f"OpenVINO {openvino.__version__} cannot read a graph that {blob.openvino:.60} wrote: {error}"
        ) from error
    _require_device(core, options.device)
    properties = _properties(core, model, blob, options)

    def compiled() -> openvino.CompiledModel:
        try:
            return core.compile_model(model, options.device, properties)
        except RuntimeError as error:
            raise DelegateInvalidCompatibility(
                f"OpenVINO {openvino.__version__} cannot compile a delegate for {options.device}: {error}"
            ) from error

    def write(folder: Path) -> None:
        exported = compiled().export_model()
        (folder / _FILE).write_bytes(exported.getbuffer())

    folder = cache.kept(
        write,
        driver=f"OpenVINO {openvino.__version__}, {_device(core, options.device)}",
        blob=[blob.xml, blob.bin, *(weight_data(weight, blob, named_data) for weight in blob.weights)],
        options=repr((options.device, sorted(properties.items()), blob.weights)),
    )
    if folder is not None:
        try:
            content = np.memmap(folder / _FILE, np.uint8, "c")  # OpenVINO wants it writable, and does not write
            return core.import_model(tensor_over(content), options.device, properties), (content,)
        except (RuntimeError, OSError, ValueError):  # not what we wrote, or somebody removed it
            cache.discard(folder)
    return compiled(), (constants, *weights)


_FILE: Final = "compiled.blob"


def _device(core: openvino.Core, device: str) -> str:
    """The device by its full name, with the driver's version where it has one."""
    names = core.available_devices if device == "AUTO" else [device]
    told = [str(core.get_property(name, "FULL_DEVICE_NAME")) for name in names]
    for name in names:
        for key in ("DRIVER_VERSION", "NPU_DRIVER_VERSION"):
            if key in core.get_property(name, "SUPPORTED_PROPERTIES"):
                told.append(str(core.get_property(name, key)))
    return ", ".join(told)


def _properties(core: openvino.Core, model: openvino.Model, blob: Blob, options: OpenVinoOptions) -> dict[str, str]:
    """OpenVINO's properties for the options, without integer products where these saturate."""
    properties = options.properties(blob.int8_products)
    if blob.bfloat16 and options.device == "CPU" and "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        properties["INFERENCE_PRECISION_HINT"] = "bf16"
    in_the_run = blob.int8_products or options.int8_products
    rounds = in_the_run or any(node.get_type_name() == "FakeQuantize" for node in model.get_ops())
    if rounds and options.device == "CPU" and products_saturate(core):
        properties |= IN_FLOAT
    return properties


def _require_device(core: openvino.Core, device: str) -> None:
    here = core.available_devices
    if device != "AUTO" and not any(name == device or name.startswith(f"{device}.") for name in here):
        raise NotSupported(
            f"OpenVINO {openvino.__version__} has no device {device} here; it has {', '.join(here) or 'none'}."
            f' Load with backend_options={{"openvino": {{"device": "{here[0] if here else "CPU"}"}}}}, or install the'
            " device's driver"
        )


def _put_weights(model: openvino.Model, blob: Blob, weights: tuple[NDArray[Any], ...]) -> None:
    """Replace the Parameters of weights by constants over the weights' memory."""
    parameters = {p.get_friendly_name(): p for p in model.get_parameters()}
    for index, (weight, array) in enumerate(zip(blob.weights, weights, strict=True)):
        parameter = parameters.get(f"{WEIGHT}{index}")
        constant = openvino.op.Constant(
            codes_over(array, weight.shape) if weight.dtype == CODES else tensor_over(array)
        )
        if parameter is None or constant.get_element_type() != parameter.get_element_type():
            raise damaged(f"its graph does not read weight {index}, or as another type")
        if parameter.get_partial_shape() != constant.get_output_partial_shape(0):
            raise damaged(f"weight {index} has shape {weight.shape}, its graph has another")
        parameter.output(0).replace(constant.output(0))
        model.remove_parameter(parameter)


def _array(weight: Weight, blob: Blob, named_data: Mapping[str, Buffer]) -> NDArray[Any]:
    """The content of a weight, without a copy."""
    data = weight_data(weight, blob, named_data)
    if weight.dtype == CODES:
        return np.frombuffer(data, np.uint8)
    return np.require(np.frombuffer(data, numpy_dtype(weight.dtype)).reshape(weight.shape), requirements="A")
