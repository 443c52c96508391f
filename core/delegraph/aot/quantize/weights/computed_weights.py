"""A module, and which of its layers are quantized -> the same, weights that are computed from the model's computed now.

    before                           after
        w = _weight_norm(v, g)           y = linear(x, weight, b)
        y = linear(x, w, b)

So every recipe and quantizer finds a weight. It gets the name of the largest parameter that it is computed from, and
takes its place if nothing else reads that one. The computation stays where the file would grow: where something else
reads the parameters too, or the result is larger than they are (`a @ b` of low rank). Quantizers may still store such
a result; recipes for weights alone do not.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import Argument, map_arg

from delegraph.aot.graph.bodies import graph_modules, referenced
from delegraph.aot.graph.operator_names import operator_name
from delegraph.aot.quantize.annotations import ancestors, is_float_tensor, is_weight
from delegraph.aot.quantize.weights.layer_weights import channel_dim, is_layer, transposed_source, weights_of
from delegraph.aot.quantize.weights.names import add_constant, parameter_name

__all__ = ["constant_value", "fold_computed_weights"]

aten = torch.ops.aten


def fold_computed_weights(module: GraphModule, filter_fn: Callable[[Node], bool]) -> None:
    """Edit `module`, and the bodies in it: the weights of the layers that `filter_fn` accepts."""
    parts = [part for _, part in graph_modules(module)]
    for part in parts:
        _drop_idle(part)
    read = {part: _weights_read(part, filter_fn) for part in parts}
    # sources that other calls read stay in the file, whatever is folded
    still = {id(source) for part in parts for source in _still_read(part, read[part])}
    computed = {part: dict.fromkeys(weight for own in read[part].values() for weight in own) for part in parts}
    # whole or not at all: a source that two of them are computed from is freed by neither alone
    for family in _families(weight for part in parts for weight in _computed(part, computed[part])):
        freed = {id(source): source.nbytes for weight in family for source in weight.sources.values()}
        distinct = {weight.key: weight for weight in family}  # the same computation twice is stored once
        if sum(weight.nbytes for weight in distinct.values()) <= sum(freed[source] for source in freed.keys() - still):
            values = {key: weight.value() for key, weight in distinct.items()}
            names: dict[tuple[GraphModule, int], str] = {}
            for weight in family:
                place = weight.part, weight.key
                if place not in names:
                    names[place] = weight.store(values[weight.key], still)
                weight.read(names[place])
    for part in parts:
        part.graph.eliminate_dead_code()
        part.recompile()


def constant_value(
    module: torch.nn.Module, value: Node, known: Mapping[Node, torch.Tensor] | None = None
) -> torch.Tensor:
    """The content of `value`, computed from constants of `module` and from the values that are `known`."""
    done: dict[Node, Argument] = dict(known or {})

    def value_of(node: Node) -> Argument:
        if node not in done and node.op == "get_attr":
            done[node] = referenced(module, node).detach()
        elif node not in done:
            args, kwargs = map_arg((node.args, node.kwargs), value_of)
            assert callable(node.target)
            done[node] = node.target(*args, **kwargs)
        return done[node]

    with torch.no_grad():
        result = value_of(value)
    assert isinstance(result, torch.Tensor)
    return result


def _is_computed(value: object) -> bool:
    if not is_float_tensor(value) or value.op != "call_function" or not is_weight(value):
        return False
    # codes that are dequantized stay codes, and what is only transposed is stored as the parameter that it is of
    is_stored = any(operator_name(node).startswith("quantized_decomposed::") for node in ancestors([value]))
    source = transposed_source(value)
    return not is_stored and (source is None or source.op != "get_attr")


# ---- which of them ----------------------------------------------------------------------------------


def _drop_idle(part: GraphModule) -> None:
    """Take out the calls on weights that do nothing, and would count as effects or chance: checks that hold, and
    dropouts that drop nothing."""
    for node in list(part.graph.nodes):
        drops = node.target is aten.dropout.default and not node.args[2]
        if (drops or node.target is aten._assert_tensor_metadata.default) and is_weight(node.args[0]):
            node.replace_all_uses_with(node.args[0])
            part.graph.erase_node(node)


def _weights_read(part: GraphModule, filter_fn: Callable[[Node], bool]) -> dict[Node, list[Node]]:
    """The computed weights, and biases, that each layer reads."""
    layers = filter(is_layer, part.graph.nodes)
    return {
        node: list(filter(_is_computed, [*weights_of(node), *(() if channel_dim(node) is None else node.args[2:3])]))
        for node in layers
        if filter_fn(node)
    }


def _still_read(part: GraphModule, read: Mapping[Node, Sequence[Node]]) -> Iterator[torch.Tensor]:
    """The constants that are needed once the layers of `read` have weights of their own, which are stored."""

    def followed(node: Node) -> list[Node]:
        stored = [*read[node], *weights_of(node)] if node in read else ()
        return [source for source in node.all_input_nodes if source not in stored]

    ends = [node for node in part.graph.nodes if node.op == "output" or node.is_impure()]
    for node in ancestors(ends, followed):
        if node.op == "get_attr" and isinstance(tensor := referenced(part, node), torch.Tensor):
            yield tensor


@dataclass(frozen=True, slots=True)
class _Computed:
    """A computed weight: `node` in the graph of `part`. Equal ones have the same `key`, in whatever graph; `sources`
    are the tensors that it is computed from, by name."""

    part: GraphModule
    node: Node
    key: int
    sources: Mapping[str, torch.Tensor]

    @property
    def nbytes(self) -> int:
        """About how many bytes it takes as it will be stored: a byte each and a scale for each row; a bias as it is."""
        value: torch.Tensor = self.node.meta["val"]
        return value.numel() + 4 * value.shape[0] if value.ndim > 1 else value.nbytes

    def value(self) -> torch.nn.Parameter:
        """Its content."""
        return torch.nn.Parameter(constant_value(self.part, self.node).contiguous(), requires_grad=False)

    def store(self, constant: torch.nn.Parameter, still: Container[int]) -> str:
        """Put `constant` into the module, in the place of the largest source unless that is `still` read; its name."""
        largest = max(self.sources, key=lambda name: self.sources[name].numel())
        name = parameter_name(largest)
        source = self.sources.get(name)
        path, _, attribute = name.rpartition(".")
        owner = self.part.get_submodule(path)
        # another one of the family may have taken its place
        if source is not None and id(source) not in still and getattr(owner, attribute) is source:
            delattr(owner, attribute)
        return add_constant(self.part, name, constant)

    def read(self, name: str) -> None:
        """Let the constant of this name stand for it."""
        with self.part.graph.inserting_before(self.node):
            constant = self.part.graph.get_attr(name)
        constant.meta = {**self.node.meta, "val": self.node.meta["val"].contiguous()}
        self.node.replace_all_uses_with(constant)


def _families(computed: Iterable[_Computed]) -> list[list[_Computed]]:
    """Computed weights in groups: two that share a source, directly or through others, are in the same one."""
    families: list[tuple[list[_Computed], set[int]]] = []
    for weight in computed:
        members, sources = [weight], set(map(id, weight.sources.values()))
        for family in [family for family in families if family[1] & sources]:  # merge those that share a source
            families.remove(family)
            members, sources = family[0] + members, family[1] | sources
        families.append((members, sources))
    return [members for members, _ in families]


def _computed(part: GraphModule, nodes: Iterable[Node]) -> Iterator[_Computed]:
    """The weights that are `nodes` of `part`."""
    keys: dict[Node, int] = {}
    for node in part.graph.nodes if nodes else ():
        # in words, since 1, 1.0 and True are different computations, though they are equal
        words = (node.target, repr(map_arg((node.args, node.kwargs), lambda source: keys[source])))
        keys[node] = id(referenced(part, node)) if node.op == "get_attr" else hash(words)
    for node in nodes:
        leaves = sorted(str(source.target) for source in ancestors([node]) if source.op == "get_attr")
        yield _Computed(part, node, keys[node], {name: attrgetter(name)(part) for name in leaves})
