"""(configuration, a method's signature) -> a function: weight's placeholder -> the `.ptd` that it goes to, or None."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from torch.fx import Node

from delegraph.aot.config import DEFAULT_EXTERNAL_TAG, ExecutorchBackendConfig
from delegraph.aot.graph.signature import ResolvedSignature

__all__ = ["external_tag"]


def external_tag(config: ExecutorchBackendConfig, signature: ResolvedSignature) -> Callable[[Node], str | None]:
    """The name without ".ptd"; never one for a constant that the model's code has in it."""
    trained = {node.name for node in signature.trained} if config.external_mutable_weights else set()
    lifted = {node.name for node, held in signature.constants.items() if held.is_lifted}
    names = {node.name: held.name for node, held in signature.constants.items()}
    chosen = config.external_constants

    def tag(node: Node) -> str | None:
        if node.name in trained:
            return DEFAULT_EXTERNAL_TAG
        if node.name in lifted:
            return None
        if callable(chosen):
            return chosen(node)
        if isinstance(chosen, Mapping):
            name = names.get(node.name)
            return next((file for pattern, file in chosen.items() if name and fnmatchcase(name, pattern)), None)
        return DEFAULT_EXTERNAL_TAG if chosen else None

    return tag
