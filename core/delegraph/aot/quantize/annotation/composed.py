"""Several quantizers, in order of priority -> one, as torchao calls it.

    before, [a, b]                a annotates linear as int8        b annotates everything as int16
        y = linear(x, w)              y = linear(x, w)   int8           y = linear(x, w)   int8
        z = gelu(y)                   z = gelu(y)                       z = gelu(y)        int16

b sees what a annotated, so that it can go on from there; its changes to that are put back. torchao's
`ComposableQuantizer` raises where a second quantizer annotates the same node; here the second annotation is dropped, so
that a quantizer may annotate all it can. Annotations are also dropped of calls that are not the quantizer's: those that
the user keeps in float, that have another recipe, or that a mask comes into (`masked_scores.py`). With them go the
annotations that would share a scale with a dropped one, or that are for the result of a dropped call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import copy
from typing import Final

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import Target

from delegraph.aot.quantize.annotation.masked_scores import masked_scores
from delegraph.aot.quantize.annotations import ANNOTATION, VALUE_MOVES, Annotation, annotate, is_float_tensor, is_weight
from delegraph.errors import LoweringError, foreign_code
from delegraph.interfaces.quantizer import Quantizer

__all__ = ["ComposedQuantizer"]


class ComposedQuantizer:
    """Asks the quantizers of a method in order. `LoweringError` names the one that raised.

    `may_annotate` says whether a quantizer, by name, may annotate a call. `finished` is applied to every spec in the
    end: the model may be meant for training.
    """

    def __init__(
        self,
        method: str,
        quantizers: Mapping[str, Quantizer],
        may_annotate: Callable[[str, Node], bool] = lambda name, node: True,
        finished: Callable[[object], object] = lambda spec: spec,
    ) -> None:
        self._method = method
        self._quantizers = quantizers
        self._may_annotate = may_annotate
        self._finished = finished
        self._own: dict[str, dict[Node, Annotation]] = {}
        self.left: dict[str, str] = {}
        """Why calls of floats are not annotated, by name, where any values are that data show; not what only moves."""

    @property
    def annotated(self) -> frozenset[str]:
        """The names of the calls that are annotated, without those whose result has its scale from their input."""
        annotations = {node: annotation for own in self._own.values() for node, annotation in own.items()}
        return frozenset(n.name for n, note in annotations.items() if not hasattr(note.output_qspec, "edge_or_node"))

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Let each quantizer change the graph, before any of them annotates it. Meanwhile the calls that it may not
        annotate have empty annotations, so that a quantizer that cuts calls into parts leaves them whole."""
        for name in self._quantizers:
            others = [n for n in model.graph.nodes if n.op == "call_function" and not self._may_annotate(name, n)]
            for node in others:
                annotate(node, {})
            changed = self._ask(name, "transform_for_annotation", model)
            for node in others:
                node.meta.pop(ANNOTATION, None)
            model = changed if isinstance(changed, GraphModule) else model
        return model

    def annotate(self, model: GraphModule) -> GraphModule:
        """Let each quantizer annotate the calls that those before it left."""
        self._own = {}
        kept: dict[Node, Annotation] = {}
        dropped: set[Node] = set()
        masked = masked_scores(model)
        for name in self._quantizers:
            self._ask(name, "annotate", model)
            new = {n: a for n, a in self._annotations(name, model).items() if n not in kept}  # the first one stays
            own = {n: a for n, a in new.items() if n not in masked and self._may_annotate(name, n)}
            self._own[name] = _without_dangling(own, new, kept)
            kept |= self._own[name]
            _put(model, kept)  # so that the next one sees neither dropped annotations nor changes to earlier ones
            dropped |= new.keys()
        # where ranges are found as it runs, values are float between layers because the recipe says so
        if any(map(_rounds_values, kept.values())):
            computing = [node for node in model.graph.nodes if node not in kept and _computes(node)]
            self.left = {node.name: self._reason(node, masked, dropped) for node in computing}
        return model

    def _reason(self, node: Node, masked: Collection[Node], dropped: Collection[Node]) -> str:
        """Why nobody annotates `node`: the reason of each quantizer that might have."""
        if node in masked:
            return "a mask comes into it: on one grid with what hides, all scores would be one number"
        said = [
            f"{name}: {reason}"
            for name in self._quantizers
            if self._may_annotate(name, node) and (reason := self._ask(name, "reason", node)) is not None
        ]
        if said:
            return "; ".join(said)
        return "it would share a grid with what stays float" if node in dropped else "no quantizer annotates it"

    def validate(self, model: GraphModule) -> None:
        """Let each quantizer look at its own annotations, without those of other devices."""
        for name, own in self._own.items():
            _put(model, own)
            self._ask(name, "validate", model)
        # torchao reads the annotations when all have validated
        annotations = {node: annotation for own in self._own.values() for node, annotation in own.items()}
        _put(model, {node: _copy(annotation, self._finished) for node, annotation in annotations.items()})

    def prepare_obs_or_fq_callback(self, model: GraphModule, observers: dict[object, object]) -> None:
        """Let each quantizer adjust the observers that were made, before they are inserted."""
        for name in self._quantizers:
            self._ask(name, "prepare_obs_or_fq_callback", model, observers)

    def _ask(self, name: str, hook: str, *args: object) -> object:
        """The result of the quantizer's `hook`; None if it has no such hook, as those of torchao's own may not."""
        called = getattr(self._quantizers[name], hook, None)
        if called is None:
            return None
        with foreign_code(f"quantizer {name!r} failed in {hook} of method {self._method!r}:"):
            return called(*args)

    def _annotations(self, name: str, model: GraphModule) -> dict[Node, Annotation]:
        """Copies, which a quantizer that comes later does not have in its hands."""
        by_node = {node: node.meta[ANNOTATION] for node in model.graph.nodes if ANNOTATION in node.meta}
        for node, annotation in by_node.items():
            if not hasattr(annotation, "input_qspec_map"):
                raise LoweringError(
                    f"quantizer {name!r} annotated {node.name} of method {self._method!r} with {annotation!r}; expected"
                    " a QuantizationAnnotation of torchao"
                )
        return {node: _copy(annotation) for node, annotation in by_node.items()}


def _computes(node: Node) -> bool:
    """Whether it computes floats from what a run gives, and does not only move them."""
    is_call = isinstance(node.target, torch._ops.OpOverload) and node.target not in VALUE_MOVES | _SPLITS
    return is_call and _gives_floats(node) and any(map(is_float_tensor, node.all_input_nodes)) and not is_weight(node)


_SPLITS: Final[frozenset[Target]] = frozenset(
    {
        *(torch.ops.aten.split.Tensor, torch.ops.aten.split_with_sizes.default),
        *(torch.ops.aten.chunk.default, torch.ops.aten.unbind.int),
    }
)
"""Operators that move values too, into several results."""


def _gives_floats(node: Node) -> bool:
    """Whether its result is a tensor of floats, or one of its results is."""
    value = node.meta.get("val")
    results = value if isinstance(value, tuple | list) else []
    return is_float_tensor(node) or any(isinstance(part, torch.Tensor) and part.is_floating_point() for part in results)


def _rounds_values(annotation: Annotation) -> bool:
    """Whether it gives values a grid ahead of time."""
    inputs = [spec for value, spec in annotation.input_qspec_map.items() if not is_weight(value)]
    specs = [spec for spec in (*inputs, annotation.output_qspec) if spec is not None]
    return any(not getattr(spec, "is_dynamic", False) for spec in specs)


def _copy(annotation: Annotation, changed: Callable[[object], object] = lambda spec: spec) -> Annotation:
    """The same with `changed` specs."""
    new = copy(annotation)
    new.input_qspec_map = {value: changed(spec) for value, spec in annotation.input_qspec_map.items()}
    new.output_qspec = changed(annotation.output_qspec)
    return new


def _without_dangling(
    own: dict[Node, Annotation], asked: Collection[Node], others: Mapping[Node, Annotation]
) -> dict[Node, Annotation]:
    """The annotations of `own` that rest on nothing that was dropped of `asked`: every spec that they share is one of
    theirs or of `others`, and none is for the result of a call that is no longer annotated. A call that one of
    `others` has annotated may leave float the value whose spec was to be shared."""
    while True:  # each annotation that goes may take those with it that shared its spec
        known, gone = _points({**others, **own}), set(asked) - own.keys()
        fit = {
            node: note
            for node, note in own.items()
            if known.issuperset(_shared_with(note)) and not (_is_rest(note) and gone & {*node.all_input_nodes})
        }
        if len(fit) == len(own):
            return own
        own = fit


def _is_rest(annotation: Annotation) -> bool:
    """Whether it belongs to the call before it: it takes values as they are, fused."""
    return all(spec is None for spec in annotation.input_qspec_map.values())


def _points(annotations: Mapping[Node, Annotation]) -> set[object]:
    """Where a spec stands: results, and (value, call) for inputs."""
    results = {node for node, annotation in annotations.items() if annotation.output_qspec is not None}
    inputs = {
        (value, node)
        for node, annotation in annotations.items()
        for value, spec in annotation.input_qspec_map.items()
        if spec is not None
    }
    return results | inputs


def _shared_with(annotation: Annotation) -> list[object]:
    """The nodes and edges that the specs of an annotation refer to."""
    specs = [*annotation.input_qspec_map.values(), annotation.output_qspec]
    shared = [spec.edge_or_node for spec in specs if hasattr(spec, "edge_or_node")]
    # a derived spec, as that of a bias, takes its scale from those of several others
    return shared + [point for spec in specs for point in getattr(spec, "derived_from", ())]


def _put(model: GraphModule, annotations: Mapping[Node, Annotation]) -> None:
    """Let the nodes of `model` have these annotations and no others."""
    for node in model.graph.nodes:
        node.meta.pop(ANNOTATION, None)
        if node in annotations:
            node.meta[ANNOTATION] = _copy(annotations[node])
