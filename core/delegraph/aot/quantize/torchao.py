"""torchao, if it is installed -> its functions that the way through quantization calls.

Importing it takes seconds, so nothing here does before somebody quantizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import torch
from torch.fx import GraphModule

from delegraph.aot.graph.bodies import bodies
from delegraph.aot.quantize.weights.body_weights import CONTROL_FLOW
from delegraph.errors import DelegraphError, LoweringError

__all__ = ["calling_torchao", "check_torchao", "graph_by_graph", "pt2e"]


def check_torchao() -> None:
    """Raise `LoweringError` with what to install if torchao cannot be imported."""
    pt2e()


def pt2e() -> Any:
    """The module with `prepare_pt2e` and `convert_pt2e`. Raises as `check_torchao`."""
    try:
        from torchao.quantization.pt2e import quantize_pt2e
    except ImportError as cause:
        raise LoweringError(
            f"quantizing needs torchao, which cannot be imported ({cause}): `pip install 'torchao>=0.18'`, or"
            " delegraph with the extra `quantize`"
        ) from cause
    return quantize_pt2e


def calling_torchao(method: str, quantizers: Iterable[str], step: Callable[[], GraphModule]) -> GraphModule:
    """What `step`, one of torchao's, gives. Raises `LoweringError` for what it raises, naming the quantizers."""
    try:
        return step()
    except DelegraphError:
        raise
    except Exception as cause:
        raise LoweringError(
            f"method {method!r}: torchao could not follow the annotations of {', '.join(quantizers)}:"
            f" {type(cause).__name__}: {cause}"
        ) from cause


def graph_by_graph(module: GraphModule, step: Callable[[GraphModule], GraphModule]) -> GraphModule:
    """What `step`, one of torchao's, makes of `module`, with what it makes of the bodies of control flow in it.

    torchao enters some bodies of its own accord and not others, and drops from them what the graph around them does not
    read: it gets each by itself, and of the others neither bodies nor the operators that have them.
    """
    made = {name: graph_by_graph(body, step) for name, body in bodies(module).items()}
    for name in made:
        setattr(module, name, torch.nn.Module())
    _exchange(module, _STAND_INS)
    whole = step(module)
    for name, body in made.items():
        setattr(whole, name, body)
    _exchange(whole, {stand_in: operator for operator, stand_in in _STAND_INS.items()})
    return whole


def _exchange(module: GraphModule, targets: Mapping[Any, Any]) -> None:
    for node in module.graph.nodes:
        node.target = targets.get(node.target, node.target)
    module.recompile()


def _stand_in(operator: Any) -> Callable[..., Any]:
    def called(*args: Any) -> Any:
        return operator(*args)

    called.__name__ = f"call_of_{operator.name()}"
    return called


_STAND_INS: Final = {operator: _stand_in(operator) for operator in CONTROL_FLOW}
