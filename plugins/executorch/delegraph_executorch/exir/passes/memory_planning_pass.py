"""Planning that sees the graph, as code written for ExecuTorch does it (`exir/passes/memory_planning_pass.py`).

A pass that changes nothing but options plans as `delegraph.aot.MemoryPlanningPass` does. One with an algorithm of its
own, or a subclass with `run` or `call` of its own, is given the method in the execution dialect (out variants, `alloc`
nodes, a `TensorSpec` on each node); the memories and offsets that it writes into the specs are those of the file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any, Final

from torch.export import ExportGraphSignature
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassBase, PassResult
from typing_extensions import deprecated

from delegraph import aot
from delegraph.aot import MethodMemory, MethodPlan
from delegraph.interfaces import Lifetime, MemoryPlanner, Plan
from delegraph.program import schema
from delegraph_executorch.exir._execution import Execution, execution_of
from delegraph_executorch.exir._planning_specs import _is_mutable_buffer, _is_out_var_node, get_node_tensor_specs
from delegraph_executorch.exir.tensor import ALIGNMENT, TensorSpec

__all__ = ["MemoryPlanningPass", "algorithms_of", "planner_of", "planning_by"]

ALGORITHMS: Final = "executorch.exir.memory_planning"
"""The module of `greedy`, `naive` and suites of algorithms over specs: the wheel's, on this package's specs too."""


def _place_inside(node: Node) -> None:
    """Let a call's result lie in the memory of the argument that its metadata names, as many bytes in."""
    position = node.meta.get("_share_alloc_with_arg_idx")
    base = node.args[position] if position is not None and 0 <= position < len(node.args) else None
    if isinstance(base, Node) and isinstance(base.meta.get("spec"), TensorSpec):
        node.meta["spec"].storage_base = base.meta["spec"]
        node.meta["spec"].storage_base_offset = node.meta.get("_shared_alloc_offset", 0)


@dataclass
class _MemoryPlanningState:
    """What the methods that one pass has planned share: the specs of each buffer, by its name."""

    mutable_buffers: dict[str, set[TensorSpec]] = field(default_factory=lambda: defaultdict(set))
    graph_modules: list[GraphModule] = field(default_factory=list)


class MemoryPlanningPass(aot.MemoryPlanningPass, PassBase):
    """ExecuTorch's options, and its ways to be extended."""

    def __init__(
        self,
        memory_planning_algo: Callable[..., Any] | None = None,
        allow_lifetime_and_storage_overlap: bool = False,
        alloc_graph_input: bool = True,
        alloc_graph_output: bool = True,
        alloc_mutable_buffers: bool = True,
        share_mutable_buffers: bool = False,
        alignment: int = ALIGNMENT,
    ) -> None:
        if share_mutable_buffers and not alloc_mutable_buffers:
            raise ValueError("share_mutable_buffers plans the buffers' memory: it needs alloc_mutable_buffers=True")
        super().__init__(
            memory_planning_algo,
            allow_lifetime_and_storage_overlap,
            alloc_graph_input,
            alloc_graph_output,
            alloc_mutable_buffers,
            share_mutable_buffers,
            alignment,
        )
        self.state = _MemoryPlanningState()
        self.enable_non_cpu_memory_planning = False

    # ---- on a graph of the execution dialect -----------------------------------------------------------

    def _set_alloc_node_spec(self, graph_module: GraphModule) -> None:
        """Give every `alloc` node the spec of the result that is written into it."""
        from delegraph_executorch.exir.dialect_ops import get_out_args_from_opoverload

        for module in (one for one in graph_module.modules() if isinstance(one, GraphModule)):
            for node in module.graph.nodes:
                if _is_out_var_node(node):
                    outs = [node.kwargs[name] for name in get_out_args_from_opoverload(node.target)]
                    allocated = [out for out in outs if isinstance(out, Node)]
                    for out, spec in zip(allocated, get_node_tensor_specs(node), strict=False):
                        out.meta["spec"] = spec
                    _place_inside(node)

    @deprecated("MemoryPlanningPass.call() sees no mutable buffers: use run()", category=FutureWarning)
    def call(self, graph_module: GraphModule) -> PassResult:
        """Plan a graph without states."""
        return self.run(graph_module)

    def run(self, graph_module: GraphModule, graph_signature: ExportGraphSignature | None = None) -> PassResult:
        """Plan a graph: every spec in it gets its place, `meta["non_const_buffer_sizes"]` the memories' sizes."""
        self._set_alloc_node_spec(graph_module)
        alloc_buffers = self.alloc_mutable_buffers and not self.share_mutable_buffers
        algorithms = import_module(f"delegraph_{ALGORITHMS}")
        algorithm = self.memory_planning_algo or algorithms.MemoryPlanningAlgorithmSuite()
        algorithms.apply_algo(
            partial(_bytes_by_memory, algorithms, algorithm),
            graph_module,
            self.alignment,
            graph_signature,
            self.alloc_graph_input,
            self.alloc_graph_output,
            alloc_buffers,
            self.enable_non_cpu_memory_planning,
        )
        if self.share_mutable_buffers and graph_signature is not None:
            self._remember_buffers(graph_module, graph_signature)
        verifier = algorithms.Verifier(
            graph_module, self.alloc_graph_input, self.alloc_graph_output, alloc_buffers, graph_signature
        )
        verifier.verify_graph_input_output()
        return PassResult(graph_module, True)

    def _remember_buffers(self, graph_module: GraphModule, signature: ExportGraphSignature) -> None:
        self.state.graph_modules.append(graph_module)
        for node in graph_module.graph.find_nodes(op="placeholder"):
            if _is_mutable_buffer(node, signature):
                self.state.mutable_buffers[signature.inputs_to_buffers[node.name]].update(get_node_tensor_specs(node))

    def run_multimethod(self) -> None:
        """One place for each buffer in all methods, in memory 2. Raises ValueError where that is taken."""
        if not self.share_mutable_buffers:
            return
        end = 0
        for specs in self.state.mutable_buffers.values():
            for spec in specs:
                spec.mem_id, spec.mem_offset = 2, end
            end += max(spec.realign(self.alignment) for spec in specs)
        for module in self.state.graph_modules:
            sizes = module.meta["non_const_buffer_sizes"]
            if len(sizes) != 2:
                raise ValueError("buffers are shared in memory 2, but a custom pool has that; use another")
            sizes.append(end)

    # ---- within a lowering -----------------------------------------------------------------------------

    def plan(self, method: MethodMemory, planner: MemoryPlanner) -> MethodPlan:
        """The file's plan: the core's own, unless there is something that only knows specs."""
        if not self._knows_specs_only:
            return super().plan(method, planner)
        execution = execution_of(method.program, method.values)
        module = execution.program.graph_module
        self.run(module, execution.program.graph_signature)
        return planned(method, execution, self.alignment)

    @property
    def planner(self) -> str:
        """The installed planner that does over lifetimes what the algorithm does over specs."""
        planners = [planner_of(algorithm) for algorithm in algorithms_of(self.memory_planning_algo)]
        return "naive" if planners == ["naive"] else "greedy"

    @property
    def _knows_specs_only(self) -> bool:
        """Whether a method has to be shown as a graph with specs: by its options alone a pass is ours."""
        extensions = ("run", "call", "_set_alloc_node_spec")
        own = any(getattr(type(self), name) is not getattr(MemoryPlanningPass, name) for name in extensions)
        return own or not all(map(planner_of, algorithms_of(self.memory_planning_algo)))


def _bytes_by_memory(algorithms: Any, algorithm: Any, *arguments: Any) -> list[int]:
    """The result of a suite; an algorithm alone gives places, which a suite of it writes into the specs."""
    result = algorithm(*arguments)
    if isinstance(result, algorithms.MemoryAlgoResult):
        result = algorithms.MemoryPlanningAlgorithmSuite([lambda *_: result])(*arguments)
    sizes: list[int] = result
    return sizes


def algorithms_of(memory_planning_algo: Any) -> list[Any]:
    """The algorithms of a suite, or the one that stands in a suite's place; none for the default."""
    return getattr(memory_planning_algo, "algo_list", [memory_planning_algo] if memory_planning_algo else [])


def planner_of(algorithm: Any) -> str | None:
    """The installed planner that does what an algorithm of ExecuTorch does; None for any other function."""
    name: str = getattr(algorithm, "__name__", "")
    return name if name in ("greedy", "naive") and algorithm.__module__.endswith(ALGORITHMS) else None


class _PlanningByPass(MemoryPlanningPass):
    """Any other pass over a graph as a memory planning pass."""

    def __init__(self, planning: Callable[..., Any]) -> None:
        super().__init__()
        self.planning = planning
        for name in ("alloc_graph_input", "alloc_graph_output", "alloc_mutable_buffers", "alignment"):
            setattr(self, name, getattr(planning, name, getattr(self, name)))

    def run(self, graph_module: GraphModule, graph_signature: ExportGraphSignature | None = None) -> PassResult:
        run = getattr(self.planning, "run", None)
        result: PassResult = self.planning(graph_module) if run is None else run(graph_module, graph_signature)
        return result


def planning_by(planning: Any) -> MemoryPlanningPass | aot.MemoryPlanningPass:
    """What `memory_planning_pass=` was given, as something that plans a method."""
    return planning if isinstance(planning, aot.MemoryPlanningPass) else _PlanningByPass(planning)


# ---- specs -> the file's plan ----------------------------------------------------------------------


def planned(method: MethodMemory, execution: Execution, alignment: int) -> MethodPlan:
    """The places that the specs of `execution` have got.

    What no spec stands for, copies that emission makes, lies behind them in memory 1.
    """
    places = dict(_places(method, execution))
    module = execution.program.graph_module
    sizes = [int(size) for size in module.meta["non_const_buffer_sizes"]]
    sizes += [0] * (2 - len(sizes))
    rest = [lifetime for lifetime in method.lifetimes if lifetime.id not in places]
    behind = -(-sizes[1] // alignment) * alignment
    end = behind
    for lifetime in rest:
        places[lifetime.id] = (1, end)
        end += -(-lifetime.nbytes // alignment) * alignment
    sizes[1] = end if rest else sizes[1]
    lifetimes = tuple(replace(lifetime, memory_id=places[lifetime.id][0]) for lifetime in method.lifetimes)
    plan = Plan(tuple(places[lifetime.id][1] for lifetime in lifetimes), tuple(sizes), _lower_bound(lifetimes))
    return MethodPlan(lifetimes, plan, tuple(_devices(module)))


def _places(method: MethodMemory, execution: Execution) -> Iterator[tuple[int, tuple[int, int]]]:
    """Value -> memory and offset, of every value that the graph itself has a planned spec for."""
    wanted = {lifetime.id for lifetime in method.lifetimes}
    for index, spec in execution.specs.items():
        if index in wanted and spec.mem_id is not None and spec.mem_offset is not None:
            yield index, (spec.mem_id, spec.mem_offset)


def _lower_bound(lifetimes: Sequence[Lifetime]) -> int:
    """The largest sum of bytes that are alive at one time."""
    change: dict[int, int] = defaultdict(int)
    for lifetime in lifetimes:
        change[lifetime.first] += lifetime.nbytes
        change[lifetime.last + 1] -= lifetime.nbytes
    live = peak = 0
    for step in sorted(change):
        live += change[step]
        peak = max(peak, live)
    return peak


def _devices(module: GraphModule) -> Iterator[schema.NonConstBufferDevice]:
    for device in module.meta.get("non_const_buffer_device") or ():
        yield schema.NonConstBufferDevice(device.buffer_idx, device.device_type, device.device_index)
