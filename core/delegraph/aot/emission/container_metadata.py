"""Structure of a method's arguments and result -> torch's JSON, readable without the classes that it names.

Named tuples of torch (`torch.return_types.topk`) and nodes that only some library knows (a Hugging Face `ModelOutput`)
become plain tuples, lists and dicts, so that a runtime without these libraries can build them. The name of a user's
NamedTuple or dataclass stands beside, under `class`, for a caller who hands over the class (`delegraph.load(types=…)`).
"""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from typing import Any, Final

from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from delegraph.program.named_classes import is_named_class
from delegraph.program.schema import ContainerMetadata

__all__ = ["container_metadata", "dump_spec"]

_PLAIN: Final = (tuple, list, dict)


def container_metadata(program: ExportedProgram) -> ContainerMetadata:
    """The structures of `program`'s ((args), {kwargs}) and result."""
    call_spec = program.call_spec
    return ContainerMetadata(dump_spec(call_spec.in_spec), dump_spec(call_spec.out_spec))


def dump_spec(spec: pytree.TreeSpec | None) -> str:
    """`spec` as torch writes it (`treespec_dumps`, protocol 1), in plain containers. Empty for none."""
    if spec is None:
        return ""
    protocol, root = json.loads(pytree.treespec_dumps(_plain(spec)))
    _name_classes(root, spec)
    return json.dumps([protocol, root])


def _name_classes(written: dict[str, Any], spec: pytree.TreeSpec) -> None:
    if is_named_class(kind := _class_of(spec)):
        written["class"] = kind.__name__
    for child, below in zip(written["children_spec"], spec.children(), strict=True):
        _name_classes(child, below)


def _class_of(spec: pytree.TreeSpec) -> Any:
    """A NamedTuple's class is the context of its node; any other's the type."""
    return spec.context if spec.type is namedtuple else spec.type


def _plain(spec: pytree.TreeSpec) -> pytree.TreeSpec:
    if spec.is_leaf():
        return spec
    children = [_plain(child) for child in spec.children()]
    if spec.type in _PLAIN:
        return pytree.TreeSpec(spec.type, spec.context, children)
    keys = _keys(spec)
    if keys is None:
        return pytree.TreeSpec(tuple, None, children)
    return pytree.TreeSpec(dict, keys, children)


def _keys(spec: pytree.TreeSpec) -> list[object] | None:
    """The names of the children of a mapping, or of a registered class that has one for each; None for a sequence."""
    kind, context = spec.type, spec.context
    reader = _CONTEXT_KEYS.get(kind)
    if reader is not None:
        return reader(context)
    named = (
        context[0] if isinstance(context, (tuple, list)) and context and not isinstance(context[0], str) else context
    )
    is_names = isinstance(named, (tuple, list)) and len(named) == spec.num_children
    if is_names and all(isinstance(name, str) for name in named) and not _is_tuple(kind):
        return list(named)
    return None


def _is_tuple(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, (tuple, list))


_CONTEXT_KEYS: Final[dict[object, Callable[[Any], list[object]]]] = {
    OrderedDict: list,
    defaultdict: lambda context: list(context[1]),
}
"""How the registered containers of the standard library keep their keys."""
