"""torchao, if it is installed -> its functions that the way through quantization calls.

Importing it takes seconds, so nothing here does before somebody quantizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Final

import torch
from torch.fx import GraphModule
from torch.fx.node import Target

from delegraph.aot.graph.bodies import bodies
from delegraph.aot.quantize.weights.body_weights import CONTROL_FLOW
from delegraph.errors import DelegraphError, LoweringError, cause_of

__all__ = ["calling_torchao", "check_torchao", "graph_by_graph", "pt2e"]


def check_torchao() -> None:
    """Raise `LoweringError` with what to install if torchao cannot be imported."""
    pt2e()


def pt2e() -> ModuleType:
    """The module with `prepare_pt2e` and `convert_pt2e`. Raises as `check_torchao`."""
    try:
        from torchao.quantization.pt2e import quantize_pt2e
    except ImportError as cause:
        raise LoweringError(
            f"quantizing needs torchao, which cannot be imported ({cause}): `pip install 'torchao>=0.18'`, or"
            " delegraph with the extra `quantize`"
        ) from cause
    module: ModuleType = quantize_pt2e
    return module


def calling_torchao(method: str, quantizers: Iterable[str], step: Callable[[], GraphModule]) -> GraphModule:
    """The result of `step`, one of torchao's. Raises `LoweringError` for what it raises, naming the quantizers."""
    try:
        return step()
    except DelegraphError:
        raise
    except Exception as cause:
        raise LoweringError(
            f"method {method!r}: torchao could not follow the annotations of {', '.join(quantizers)}: {cause_of(cause)}"
        ) from cause


def graph_by_graph(module: GraphModule, step: Callable[[GraphModule], GraphModule]) -> GraphModule:
    """`module` after `step`, one of torchao's, which is applied to each body of control flow in it by itself.

    torchao enters some bodies by itself and not others, and drops the calls in them that the graph around does not
    read. So while it works on a graph, empty modules stand for its bodies, and plain functions for the operators that
    call them.
    """
    converted = {name: graph_by_graph(body, step) for name, body in bodies(module).items()}
    for name in converted:
        setattr(module, name, torch.nn.Module())
    _exchange(module, _STAND_INS)
    whole = step(module)
    for name, body in converted.items():
        setattr(whole, name, body)
    _exchange(whole, {stand_in: operator for operator, stand_in in _STAND_INS.items()})
    return whole


def _exchange(module: GraphModule, targets: Mapping[Target, Target]) -> None:
    for node in module.graph.nodes:
        node.target = targets.get(node.target, node.target)
    module.recompile()


def _stand_in(operator: Target) -> Target:
    def called(*args: object) -> object:
        assert callable(operator)
        return operator(*args)

    called.__name__ = f"call_of_{operator}"
    return called


_STAND_INS: Final[Mapping[Target, Target]] = {operator: _stand_in(operator) for operator in CONTROL_FLOW}
