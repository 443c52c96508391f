"""A model -> a stored program, lowered onto the subject: the part of the kit that imports torch."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

import delegraph
from delegraph import ExecutorchBackendConfig, Lowered, LoweringConfig
from delegraph.plugins import default_registry
from delegraph_testkit.arrays import Array
from delegraph_testkit.bench import Bench, Call, Facts, Stored
from delegraph_testkit.edge_programs import changed_methods
from delegraph_testkit.models import Example, example
from delegraph_testkit.opaque import kernel_order
from delegraph_testkit.subject import Kind, Subject
from delegraph_testkit.whole_keeper_aot import whole_keeper

__all__ = [
    "asked_for",
    "expected_calls",
    "facts_of",
    "kernel_facts",
    "lowered_onto",
    "quantized",
    "quantized_as_claimed",
    "store",
    "to_array",
]


def store(bench: Bench, name: str) -> Stored:
    """Lower a model onto the subject, and write it as `name`, with torch's results.

    `name` is the model's, or `model@first`, `model@last`: with the kit's own backend behind or before the subject; or
    `model@PLANNER`: planned by another one than the subject.
    """
    model, _, place = name.partition("@")
    source, stored = example(model), bench.stored(name)
    weights = {"*": name} if model == "external" else False
    programs = quantized_as_claimed(bench.subject, source)
    backends, options = _settings(bench.subject, place)
    lowered = lowered_onto(source, backends, programs, external_constants=weights, **options)
    lowered.save(stored.file)
    stored.write(_facts(bench.subject, source, lowered, stored), list(expected_calls(source, programs)))
    return stored


def _settings(subject: Subject, place: str) -> tuple[list[Any], dict[str, Any]]:
    """The backends and options with which the subject's programs are lowered."""
    match subject.kind:
        case Kind.KERNELS:
            return [], {"kernels": kernel_order((subject.name,))}
        case Kind.PASS:
            return [], {"passes": [asked_for(subject)]}
        case Kind.PLANNER:
            return [], {"memory_planner": place or subject.name}
        case Kind.TOOL:  # which is on wherever the process finds it
            return [whole_keeper()], {}
    own = asked_for(subject)
    return {"": [own], "first": [own, whole_keeper()], "last": [whole_keeper(), own]}[place], {}


def _facts(subject: Subject, source: Example, lowered: Lowered, stored: Stored) -> Facts:
    """The facts about the subject's part in a program that was saved as `stored`."""
    match subject.kind:
        case Kind.KERNELS:
            return kernel_facts(stored.file, subject.name, list(source.modules), stored.external)
        case Kind.PASS:
            changed = changed_methods(source, [asked_for(subject)])
            return Facts(changed, {} if changed else {"the program": "it leaves it as it was"})
        case Kind.PLANNER:
            return Facts(("every planned tensor",))
        case Kind.TOOL:
            return Facts(("whatever is lowered and run",), backends=facts_of(lowered, source).backends)
    return facts_of(lowered, source)


def asked_for(subject: Subject) -> Any:
    """The subject, as it stands in `backends=[…]` or `transform_passes=[…]`."""
    return subject.name, dict(subject.claims.options)


def lowered_onto(
    source: Example,
    backends: Sequence[Any],
    programs: Mapping[str, ExportedProgram] | None = None,
    passes: Sequence[Any] = (),
    **options: Any,
) -> Lowered:
    """Lower onto `backends`, in their order, through `passes`; `programs` are the example's, quantized, and `options`
    are of `ExecutorchBackendConfig`."""
    executorch = ExecutorchBackendConfig(**{"kernels": kernel_order(), **options})
    config = LoweringConfig(executorch=executorch, transform_passes=passes)
    if programs is not None:
        return delegraph.lower(programs, backends=list(backends), config=config)
    return delegraph.lower(
        copy.deepcopy(dict(source.modules)),
        {method: calls[0] for method, calls in source.calls.items()},
        dynamic_shapes=dict(source.dynamic_shapes) or None,
        backends=list(backends),
        config=config,
    )


def quantized(source: Example, quantizer: str) -> Mapping[str, ExportedProgram]:
    """The example's programs, quantized on its own calls."""
    return delegraph.quantize(
        copy.deepcopy(dict(source.modules)),
        {method: list(calls) for method, calls in source.calls.items()},
        {method: calls[0] for method, calls in source.calls.items()},
        quantizers=[quantizer],
        dynamic_shapes=dict(source.dynamic_shapes) or None,
    )


def quantized_as_claimed(subject: Subject, source: Example) -> Mapping[str, ExportedProgram] | None:
    """The example's programs as they come to a device that computes in integers; None where the author names no
    quantizer."""
    return quantized(source, subject.claims.quantizer) if subject.claims.quantizer else None


def facts_of(lowered: Lowered, source: Example) -> Facts:
    """The facts that lowering told of an example."""
    methods = lowered.report.methods.values()
    delegates = [delegate for method in methods for delegate in method.delegates]
    left = {
        entry.operator: "; ".join(filter(None, entry.reasons.values()))
        for method in methods
        for entry in method.leftovers
    }
    taken = tuple(node for delegate in delegates for node in delegate.nodes)
    backends = tuple(dict.fromkeys(delegate.backend for delegate in delegates))
    features = tuple(_features(lowered, source, backends))
    return Facts(taken, left, backends, features, refused=lowered.report.refusals)


def kernel_facts(program: Path | bytes, library: str, methods: Sequence[str], external: Sequence[Path] = ()) -> Facts:
    """Which operators of a program `library` runs."""
    order = kernel_order((library,))
    module = delegraph.load(program, method=methods[0], kernels=order, data_path=list(external) or None)
    winners = {op: winner for method in methods for op, winner in module[method].method.kernels.items()}
    taken = tuple(op for op, winner in winners.items() if winner == library)
    left = {op: f"{library} has no kernel of it for this call" for op in winners if op not in taken}
    return Facts(taken, left, (), ("dynamic_shapes",), (library,))


def _features(lowered: Lowered, source: Example, backends: Sequence[str]) -> Iterator[str]:
    """The features that a program in which all is taken makes use of."""
    modules = list(source.modules.values())
    programs = [lowered.edge.exported_program(method) for method in source.modules]
    if any(module.buffers() for module in modules) and not any(p.graph_signature.buffers_to_mutate for p in programs):
        yield "mutable_buffers"
    weights = sum(weight.nbytes for weight in {id(w): w for module in modules for w in module.parameters()}.values())
    if len(bytes(lowered)) < 1.5 * weights:
        yield "shared_weights"
    registered = set(backends) & set(default_registry().names("lowerings"))
    if all(default_registry().load("lowerings", backend).takes_external_weights for backend in registered):
        yield "external_weights"
    yield from ("dynamic_shapes", "control_flow")


def expected_calls(source: Example, programs: Mapping[str, ExportedProgram] | None = None) -> Iterator[Call]:
    """Each call with torch's results, and how far these are from double precision's.

    With quantized `programs`: their results in eager mode, and how far these are from the float model's: a device may
    be as far from either as they are from each other.
    """
    for method, module in source.modules.items():
        run, double = copy.deepcopy(module), copy.deepcopy(module).double()
        for inputs in source.calls[method]:
            with torch.no_grad():
                results = pytree.tree_leaves(run(*(tensor.clone() for tensor in inputs)))
                precise = [result.double() for result in results]
                if programs is None:
                    precise = pytree.tree_leaves(double(*map(_as_double, inputs)))
                else:
                    results = pytree.tree_leaves(programs[method].module()(*(tensor.clone() for tensor in inputs)))
            slack = tuple(2 * _apart(result, exact) for result, exact in zip(results, precise, strict=True))
            yield Call(method, tuple(map(to_array, inputs)), tuple(map(to_array, results)), slack)


def _as_double(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _apart(result: Tensor, precise: Tensor) -> float:
    if not result.is_floating_point() or not result.numel():
        return 0.0
    apart = (result.double() - precise).abs()
    return float(apart[apart.isfinite()].max()) if apart.isfinite().any() else 0.0


def to_array(tensor: Tensor) -> Array:
    """A copy as an array, also of a dtype that NumPy gets from ml_dtypes."""
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.uint16).numpy().view("bfloat16").copy()
    return np.array(tensor.detach().numpy(), copy=True)
