"""A blob -> what is in it: the operations of its IR, its weights, the small constants in the bin as well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final
from xml.etree import ElementTree

from delegraph.interfaces import Buffer, DelegateDescription, DelegateNode, DelegateWeight, DescribedTensor
from delegraph_openvino.blob import ELEMENT_TYPES, INPUT, WEIGHT, Blob, TensorInfo, weight_data

__all__ = ["described"]

_DTYPES: Final = {name.upper(): dtype for dtype, name in ELEMENT_TYPES.items()} | {
    "FP16": "float16", "FP32": "float32", "FP64": "float64", "BOOL": "bool", "U64": "uint64",
}  # fmt: skip
"""The precisions of ports in an IR -> NumPy's names."""
_NO_NODES: Final = ("Parameter", "Const", "Result")


def described(blob: Blob, net: ElementTree.Element, named_data: Mapping[str, Buffer]) -> DelegateDescription:
    """The content of a blob, of which `net` is the tree of the xml."""
    inline = {weight.name: weight for weight in _inline(net, memoryview(blob.bin))}
    rest = memoryview(blob.bin).nbytes - sum(weight.nbytes for weight in inline.values())
    stored = [
        DelegateWeight(
            f"{WEIGHT}{place}",
            weight.dtype,
            weight.shape,
            weight.nbytes,
            weight.key,
            data=weight_data(weight, blob, named_data),
        )
        for place, weight in enumerate(blob.weights)
    ]
    return DelegateDescription(
        nodes=tuple(_nodes(net)),
        weights=(*stored, *inline.values()),
        inputs=tuple(_argument(f"{INPUT}{place}", info) for place, info in enumerate(blob.inputs)),
        outputs=tuple(_argument(f"output_{place}", info) for place, info in enumerate(blob.outputs)),
        options={"openvino": blob.openvino, "int8_products": str(blob.int8_products), "bfloat16": str(blob.bfloat16)},
        parts={"xml": memoryview(blob.xml).nbytes, "bin, besides constants": rest},
    )


def _argument(name: str, info: TensorInfo) -> DescribedTensor:
    return DescribedTensor(name, info.dtype, info.shape)


def _constant_name(layer: ElementTree.Element) -> str:
    """Constants of the same content lie in the bin once."""
    data = layer.find("data")
    return "" if data is None else f"constant:{data.get('offset')}"


def _inline(net: ElementTree.Element, content: memoryview) -> Iterator[DelegateWeight]:
    """The constants in the bin; of those that overlap the first."""
    layers = [(int(data.get("offset", 0)), layer, data) for layer, data in _constants(net)]
    end = 0
    for offset, layer, data in sorted(layers, key=lambda entry: entry[0]):
        if offset >= end:
            nbytes, shape = int(data.get("size", 0)), data.get("shape", "")
            dims = tuple(int(dim) for dim in shape.split(",") if dim.strip())
            end = offset + nbytes
            dtype = _DTYPES.get(data.get("element_type", "").upper(), "")
            yield DelegateWeight(_constant_name(layer), dtype, dims, nbytes, data=content[offset:end])


def _constants(net: ElementTree.Element) -> Iterator[tuple[ElementTree.Element, ElementTree.Element]]:
    for layer in net.iter("layer"):
        data = layer.find("data")
        if layer.get("type") == "Const" and data is not None:
            yield layer, data


def _nodes(graph: ElementTree.Element, prefix: str = "") -> Iterator[DelegateNode]:
    """The operations of a net or a body, those of bodies behind the operation that runs them. `prefix` stands before
    the names of a body, whose operations have names of their own."""
    layers, edges, _ = graph
    names = {layer.get("id", ""): _name(layer, prefix) for layer in layers}
    read: dict[str, list[str]] = {}
    for edge in sorted(edges, key=lambda edge: int(edge.get("to-port", 0))):
        read.setdefault(edge.get("to-layer", ""), []).append(names.get(edge.get("from-layer", ""), ""))
    for layer in layers:
        kind, own = layer.get("type", ""), names[layer.get("id", "")]
        if kind in _NO_NODES:
            continue
        made_of, slash, _ = layer.get("name", "").partition("/")
        yield DelegateNode(
            own, kind, tuple(read.get(layer.get("id", ""), ())), _outputs(layer, own), made_of if slash else None
        )
        for body in ("then_body", "else_body"):
            inside = layer.find(body)
            if inside is not None:
                yield from _nodes(inside, f"{own}.{body}.")


def _name(layer: ElementTree.Element, prefix: str) -> str:
    return _constant_name(layer) if layer.get("type") == "Const" else f"{prefix}{layer.get('name', '')}"


def _outputs(layer: ElementTree.Element, name: str) -> tuple[DescribedTensor, ...]:
    return tuple(
        DescribedTensor(name, _DTYPES.get(port.get("precision", ""), ""), tuple(_size(dim.text) for dim in port))
        for port in layer.iterfind("./output/port")
    )


def _size(text: str | None) -> int | str:
    """-1 is a dim of any size."""
    return "?" if text is None or text.strip() == "-1" else int(text)
