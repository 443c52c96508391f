"""Several quantizers, in order of priority -> one, as torchao calls it.

    before, [a, b]                a annotates linear as int8        b annotates everything as int16
        y = linear(x, w)              y = linear(x, w)   int8           y = linear(x, w)   int8
        z = gelu(y)                   z = gelu(y)                       z = gelu(y)        int16

b sees what a annotated, so that it can go on from there; whatever it does to that is put back. Where torchao's
`ComposableQuantizer` refuses a quantizer that annotates a node for the second time, here it costs that one nothing to
annotate all it can.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from torch.fx import GraphModule, Node

from delegraph.errors import DelegraphError, LoweringError
from delegraph.interfaces.quantizer import Quantizer

__all__ = ["ComposedQuantizer"]

ANNOTATION: Final = "quantization_annotation"
"""Where torchao keeps a node's `QuantizationAnnotation` (`Q_ANNOTATION_KEY` of `pt2e/quantizer/quantizer.py`)."""


class ComposedQuantizer:
    """Asks the quantizers of a method in order. `LoweringError` names the one that raised."""

    def __init__(self, method: str, quantizers: Mapping[str, Quantizer]) -> None:
        self._method = method
        self._quantizers = quantizers
        self._own: dict[str, dict[Node, Any]] = {}

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Let each change the graph, before any of them annotates it."""
        for name in self._quantizers:
            changed = self._ask(name, "transform_for_annotation", model)
            model = model if changed is None else changed
        return model

    def annotate(self, model: GraphModule) -> GraphModule:
        """Let each annotate what those before it left."""
        self._own = {}
        kept: dict[Node, Any] = {}
        for name in self._quantizers:
            self._ask(name, "annotate", model)
            self._own[name] = {n: a for n, a in self._annotations(name, model).items() if n not in kept}
            kept |= self._own[name]
            _put(model, kept)
        return model

    def validate(self, model: GraphModule) -> None:
        """Let each look at its own annotations, without those of other devices."""
        for name, own in self._own.items():
            _put(model, own)
            self._ask(name, "validate", model)
        _put(model, {node: annotation for own in self._own.values() for node, annotation in own.items()})

    def prepare_obs_or_fq_callback(self, model: GraphModule, observers: dict[Any, Any]) -> None:
        """Let each adjust the observers that were made, before they are inserted."""
        for name in self._quantizers:
            self._ask(name, "prepare_obs_or_fq_callback", model, observers)

    def _ask(self, name: str, hook: str, *args: Any) -> Any:
        """What the quantizer's `hook` returns; None if it does not have it, which may be for those of torchao's own."""
        called = getattr(self._quantizers[name], hook, None)
        if called is None:
            return None
        try:
            return called(*args)
        except DelegraphError:
            raise
        except Exception as cause:
            raise LoweringError(
                f"quantizer {name!r} failed in {hook} of method {self._method!r}: {type(cause).__name__}: {cause}"
            ) from cause

    def _annotations(self, name: str, model: GraphModule) -> dict[Node, Any]:
        """Copies, which a quantizer that comes later does not have in its hands."""
        found = {node: node.meta[ANNOTATION] for node in model.graph.nodes if ANNOTATION in node.meta}
        for node, annotation in found.items():
            if not hasattr(annotation, "input_qspec_map"):
                raise LoweringError(
                    f"quantizer {name!r} annotated {node.name} of method {self._method!r} with {annotation!r}; expected"
                    " a QuantizationAnnotation of torchao"
                )
        return {node: _copy(annotation) for node, annotation in found.items()}


def _copy(annotation: Any) -> Any:
    return replace(annotation, input_qspec_map=dict(annotation.input_qspec_map))


def _put(model: GraphModule, annotations: Mapping[Node, Any]) -> None:
    """Let the nodes of `model` have these annotations and no others."""
    for node in model.graph.nodes:
        node.meta.pop(ANNOTATION, None)
        if node in annotations:
            node.meta[ANNOTATION] = _copy(annotations[node])
