"""A blob's IR and weights -> the pair of files that `openvino.Core().read_model` opens. OpenVINO is not needed for it.

In the blob a large weight is a Parameter; here it is a Const over its bytes, which lie behind the small constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

from delegraph.interfaces import Buffer
from delegraph_openvino.blob import ALIGNMENT, ELEMENT_TYPES, WEIGHT, Blob, Weight, damaged

__all__ = ["ir_files"]


def ir_files(
    name: str, blob: Blob, net: ElementTree.Element, weights: Sequence[Buffer]
) -> Mapping[str, Sequence[Buffer]]:
    """`name.bin` and `name.xml`; `net` is the tree of the blob's xml, and `weights` are the bytes of its weights, in
    order.

    Raises `DelegateInvalidCompatibility` if the graph reads other weights.
    """
    layers = {layer.get("name"): layer for layer in net.iterfind("./layers/layer[@type='Parameter']")}
    pieces, end = [blob.bin], len(blob.bin)
    for index, (weight, content) in enumerate(zip(blob.weights, weights, strict=True)):
        start = -(-end // ALIGNMENT) * ALIGNMENT
        _make_constant(layers.get(f"{WEIGHT}{index}"), index, weight, start)
        pieces += [bytes(start - end), content]
        end = start + weight.nbytes
    return {f"{name}.bin": pieces, f"{name}.xml": [ElementTree.tostring(net, xml_declaration=True, encoding="utf-8")]}


def _make_constant(layer: ElementTree.Element | None, index: int, weight: Weight, offset: int) -> None:
    data = None if layer is None else layer.find("data")
    told = {"element_type": ELEMENT_TYPES[weight.dtype], "shape": ",".join(map(str, weight.shape))}
    if layer is None or data is None or data.attrib != told:
        raise damaged(f"its graph does not read weight {index}, or as another type or shape")
    layer.set("type", "Const")
    data.attrib |= {"offset": str(offset), "size": str(weight.nbytes)}
