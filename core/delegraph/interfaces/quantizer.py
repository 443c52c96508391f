"""The interface of quantizers: a model -> the same model with annotations that say how its values are quantized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch.fx import GraphModule

__all__ = ["Quantizer", "QuantizerFactory"]


class Quantizer(Protocol):
    """torchao's `Quantizer` (`torchao/quantization/pt2e/quantizer/quantizer.py`); one need not derive from it.

    Its three optional methods are called where a quantizer has them: `transform_for_annotation(model)` before any
    quantizer annotates, `prepare_obs_or_fq_callback(model, edge_or_node_to_obs_or_fq)` once the observers are made, and
    `reason(node)` of each call of floats that nobody has annotated, which says why it has not, or None, for the report.
    While the first runs, calls that this quantizer may not annotate have an annotation of nothing: it leaves them.

    All of them are called for each body of control flow too, which is a `model` then, with the weights that it reads.
    """

    def annotate(self, model: GraphModule) -> GraphModule:
        """Say on the nodes of `model`, in `node.meta["quantization_annotation"]`, how inputs and outputs are quantized.

        Nodes that a quantizer before this one has annotated keep what they have, whatever is written there. The result
        is not used.
        """

    def validate(self, model: GraphModule) -> None:
        """Raise if the annotated `model` is more than the device can do; it has this quantizer's annotations alone."""


class QuantizerFactory(Protocol):
    """The factory behind a `delegraph.quantizers` entry point, whose name is the strategy's."""

    def __call__(self, options: Mapping[str, Any], /) -> Quantizer:
        """Make a quantizer. As with `PartitionerFactory`, options may be keyword parameters.

        `delegraph.quantize(recipe=…, backends=[name])` gives the option `recipe`, as the user wrote it,
        `"int8{observer=minmax}"`, or a `Recipe` where that is one of the user's own which no text says;
        `delegraph.aot.recipe_named` reads both. A quantizer annotates what its device does
        well in that recipe, and raises `LoweringError` for one that it has no part in.
        """
