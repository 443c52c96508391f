"""A compiled partition -> the bytes of its blob: weights where they belong, states with what they begin with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import onnx_ir as ir
from torch.export import ExportedProgram

from delegraph.aot import NamedDataStore
from delegraph.aot.authoring import as_array, has_fallback
from delegraph.interfaces import BlobFormat, Buffer, PreprocessResult
from delegraph_cpu.aot.compiled.beside import reference
from delegraph_cpu.aot.compiled.shared_contents import SharedContents, content_bytes
from delegraph_cpu.aot.compiled.unfolded import constants_again
from delegraph_cpu.blob import ALIGNMENT, FORMAT, Blob, StateInfo, Weight, bytes_of, pack
from delegraph_onnx.convert import ExternalWeight, State
from delegraph_onnx.dtypes import COMPLEX, ONNX_TYPES

__all__ = ["Compiled", "laid_beside", "packed", "shape_of", "state_records"]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A partition after optimisation: the blob without its weights; the contents of these weights, to which its graph
    only refers; the external weights that it still reads; the initial values of its states, in order.
    """

    blob: Blob
    weights: dict[str, ir.TensorProtocol]
    external: tuple[ExternalWeight, ...]
    initial: list[memoryview]
    debug_handles: dict[str, tuple[int, ...]]


def laid_beside(model: ir.Model, external: Sequence[ExternalWeight]) -> tuple[ExternalWeight, ...]:
    """Turn the inputs of a graph that are external weights into weights that lie beside it. Returns those that it
    reads."""
    beside: dict[str, ir.TensorProtocol] = {}
    for weight in external:
        dtype, shape = ONNX_TYPES[COMPLEX.get(weight.tensor.dtype, weight.tensor.dtype)], shape_of(weight)
        beside[weight.info.name] = reference(weight.info.name, dtype, shape, weight.tensor.nbytes)
    read = constants_again(model.graph, beside)
    return tuple(weight for weight in external if weight.info.name in read)


def packed(
    compiled: Sequence[Compiled], programs: Sequence[ExportedProgram], form: BlobFormat = FORMAT
) -> list[PreprocessResult]:
    """The results of partitions that are compiled together, of these `programs`: weights that several have, or that a
    fall-back has beside the blob, go into the named data, once."""
    contents = SharedContents()
    kept_beside = [has_fallback(program) for program in programs]
    keys = contents.keys([of_partition.weights for of_partition in compiled], kept_beside)
    return [_packed(of_partition, own, contents, form) for of_partition, own in zip(compiled, keys, strict=True)]


def _packed(
    compiled: Compiled, shared: Mapping[str, str], contents: SharedContents, form: BlobFormat
) -> PreprocessResult:
    """The blob; weights that have a key in `shared` go into the named data under it."""
    named, records, chunks = NamedDataStore(), list[Weight](), list[Callable[[], Buffer]]()
    for name, tensor in compiled.weights.items():
        key = shared.get(name)
        if key is not None:
            named.add_named_data(key, contents.bytes_of(key), ALIGNMENT)
        else:
            chunks.append(partial(content_bytes, tensor))
        records.append(Weight(name, str(tensor.dtype.numpy()), tuple(tensor.shape.numpy()), tensor.nbytes, key=key))
    for weight in compiled.external:
        info = weight.info
        named.add_named_data(weight.key, weight.tensor, ALIGNMENT, external_tag=weight.tag)
        records.append(Weight(info.name, info.dtype, shape_of(weight), weight.tensor.nbytes, key=weight.key))
    blob = pack(replace(compiled.blob, weights=tuple(records)), [*chunks, *compiled.initial], form)
    return PreprocessResult(blob, compiled.debug_handles, data_store_output=named.get_named_data_store_output())


def state_records(
    states: Sequence[State], in_place: Mapping[str, str]
) -> tuple[tuple[StateInfo, ...], list[memoryview]]:
    """The records of the states, and the initial values of those that do not begin with zeros."""
    records, contents = [], []
    for state in states:
        old, new, array = state.input, state.output, as_array(state.tensor)
        zeros = not array.any()
        records.append(
            StateInfo(
                state.buffer, old.name, new.name, old.dtype, array.shape,
                in_place.get(old.name) == new.name, None if zeros else 0,
            )
        )  # fmt: skip
        if not zeros:
            contents.append(bytes_of(array))
    return tuple(records), contents


def shape_of(weight: ExternalWeight) -> tuple[int, ...]:
    """The sizes of an external weight."""
    return tuple(int(dim) for dim in weight.info.shape)
