"""Delegates without blobs -> the same with blobs: every backend compiles its partitions of all methods, stamped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import ParamSpec, TypeAlias, TypeVar

from torch.export import ExportedProgram

from delegraph.aot.delegation.instances import instances_of
from delegraph.aot.delegation.lowered_module import Compiled, LoweredBackendModule, lowered_modules, with_blobs
from delegraph.aot.delegation.lowerings import find_lowering
from delegraph.aot.delegation.weights_guard import ChangedWeight, unchanged_weights
from delegraph.aot.functional.functionalize import fake_mode_of, fixed_sizes
from delegraph.errors import (
    FOREIGN,
    DelegraphError,
    LoweringError,
    PluginUnavailable,
    PreprocessError,
    UnsupportedOperator,
    cause_of,
    foreign_code,
)
from delegraph.interfaces.lowering import BackendDetails, PreprocessResult
from delegraph.interfaces.stamp import BlobStamp
from delegraph.logs import Logger
from delegraph.plugins.discovery import Offer
from delegraph.plugins.registry import IN_PROCESS, PluginRegistry, default_registry
from delegraph.program.buffers import byte_view

__all__ = ["compile_delegates", "compile_or_refuse", "stamp_of"]

_log = Logger(__name__)

_GROUP = "lowerings"

_P = ParamSpec("_P")
_R = TypeVar("_R")


def compile_delegates(
    modules: Mapping[str, Sequence[LoweredBackendModule]], plugins: PluginRegistry | None = None
) -> Compiled:
    """These modules, by method, with their blobs: new ones, by the old. Raises as `compile_or_refuse`, and what a
    backend refuses with."""
    compiled, refused = compile_or_refuse(modules, plugins)
    for error in refused.values():
        raise error
    return compiled


def compile_or_refuse(
    modules: Mapping[str, Sequence[LoweredBackendModule]], plugins: PluginRegistry | None = None
) -> tuple[Compiled, dict[LoweredBackendModule, LoweringError]]:
    """As `compile_delegates`, and the modules that their backends refuse, with the errors: `UnsupportedOperator` and
    `PreprocessError` of a backend's own.

    Each backend's `preprocess_multimethod` is called once, with all its partitions of all methods; those that hold
    other delegates in a call of their own, after those. If it refuses, it is called with each alone, to find out which.
    Raises `PreprocessError` naming the partitions, the plug-in and the cause for whatever else a backend raises or
    returns; `PluginUnavailable` (a compiler is not installed) passes through.
    """
    plugins = plugins or default_registry()
    compiled: dict[LoweredBackendModule, LoweredBackendModule] = {}
    refused: dict[LoweredBackendModule, LoweringError] = {}
    for ready in _innermost_first(modules):
        for backend_id in dict.fromkeys(module.backend_id for group in ready.values() for module in group):
            mine = {
                method: [m for m in group if m.backend_id == backend_id and refused.keys().isdisjoint(_delegates_in(m))]
                for method, group in ready.items()
            }
            asked = {method: group for method, group in mine.items() if group}
            if asked:
                done, not_done = _compile(asked, backend_id, plugins, compiled)
                compiled |= done
                refused |= not_done
    return compiled, refused


def _innermost_first(
    modules: Mapping[str, Sequence[LoweredBackendModule]],
) -> Iterator[dict[str, list[LoweredBackendModule]]]:
    """The modules in groups, each behind those whose blobs it may look at."""
    waiting = {id(module) for group in modules.values() for module in group}
    while waiting:
        ready = {
            method: [m for m in group if id(m) in waiting and waiting.isdisjoint(map(id, _delegates_in(m)))]
            for method, group in modules.items()
        }
        yield ready
        waiting -= {id(module) for group in ready.values() for module in group}


def _delegates_in(module: LoweredBackendModule) -> list[LoweredBackendModule]:
    return lowered_modules(module.original_module.graph_module)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Stands for the result of a backend that refuses."""

    error: LoweringError


_Modules: TypeAlias = "dict[str, list[LoweredBackendModule]]"
_Result: TypeAlias = "PreprocessResult | _Refusal"
_ProgramOf: TypeAlias = "Callable[[LoweredBackendModule], ExportedProgram]"


def _compile(
    modules: _Modules, backend_id: str, plugins: PluginRegistry, inner: Compiled
) -> tuple[Compiled, dict[LoweredBackendModule, LoweringError]]:
    """The modules, all of one backend, with their blobs, and those that it refuses; `inner` are the delegates that may
    stand in them."""
    start = perf_counter()
    offer, lowering = find_lowering(backend_id, plugins)
    stamp = stamp_of(offer, backend_id, lowering)

    def serves(module: LoweredBackendModule) -> bool:
        with foreign_code(f"backend {backend_id!r} ({offer.distribution}): its serves_fixed_sizes raised"):
            return bool(lowering.serves_fixed_sizes(module.original_module, module.compile_specs))

    def program_of(module: LoweredBackendModule) -> ExportedProgram:
        program = with_blobs(module.program_to_compile(), inner)
        with foreign_code(f"backend {backend_id!r} ({offer.distribution}): its copy for preprocess raised"):
            copied: ExportedProgram = lowering.copy_exported_program_for_preprocess(program, list(module.compile_specs))
        return copied

    instances = instances_of(modules, serves)
    asked = {method: own for method, group in modules.items() if (own := [m for m in group if m not in instances])}
    if _compiles_one_by_one(lowering):
        results = _one_by_one(plugins.bound(_GROUP, lowering, "preprocess"), offer, asked, program_of)
    else:
        results = _together(plugins.bound(_GROUP, lowering, "preprocess_multimethod"), offer, asked, program_of)
    for module, instance in instances.items():
        result = results.get(instance.general)  # None beside a refusal, after which all are asked about again
        if isinstance(result, PreprocessResult):
            results[module] = instance.result(result)
    refused = {module: result.error for module, result in results.items() if isinstance(result, _Refusal)}
    compiled = {
        module: module.compiled(_checked(results[module], offer, {method: [module]}), stamp)
        for method, group in modules.items()
        for module in group
        if module in results and module not in refused
    }
    nbytes = sum(byte_view(module.processed_bytes).nbytes for module in compiled.values())
    told = (backend_id, offer.provider, len(compiled), perf_counter() - start, nbytes)
    _log.info("%s of %s compiled %d delegates in %.3f s: %d bytes", *told)
    for module, error in refused.items():
        _log.info("%s refuses %s: %s", backend_id, module.tag, error)
    return compiled, refused


def _one_by_one(
    preprocess: Callable[..., PreprocessResult], offer: Offer, modules: _Modules, program_of: _ProgramOf
) -> dict[LoweredBackendModule, _Result]:
    return {
        module: _call(preprocess, offer, {method: [module]}, program_of(module), list(module.compile_specs))
        for method, group in modules.items()
        for module in group
    }


def _together(
    preprocess: Callable[..., dict[str, list[PreprocessResult]]],
    offer: Offer,
    modules: _Modules,
    program_of: _ProgramOf,
) -> dict[LoweredBackendModule, _Result]:
    """The result for each module; where there is a refusal, for those alone that are refused by themselves, or else
    for all."""
    specs = {method: [list(module.compile_specs) for module in group] for method, group in modules.items()}
    programs = {method: [program_of(module) for module in group] for method, group in modules.items()}
    results = _call(preprocess, offer, modules, programs, specs)
    everything = [(method, module) for method, group in modules.items() for module in group]
    if not isinstance(results, _Refusal):
        _check_shape(results, modules, offer)
        of_each = (result for method, group in modules.items() for result in results[method])
        return {module: result for (_, module), result in zip(everything, of_each, strict=True)}
    if len(everything) == 1:
        return {everything[0][1]: results}
    alone: dict[LoweredBackendModule, _Result] = {}
    for method, module in everything:
        alone |= _together(preprocess, offer, {method: [module]}, program_of)
    refused = {module: result for module, result in alone.items() if isinstance(result, _Refusal)}
    return dict(refused) or {module: results for _, module in everything}


def _compiles_one_by_one(lowering: object) -> bool:
    """Whether the backend left `preprocess_multimethod` as it is: then each partition's failure has its own name."""
    method = getattr(lowering, "preprocess_multimethod", None)
    return getattr(method, "__func__", None) is BackendDetails.preprocess_multimethod.__func__  # type: ignore[attr-defined]


def stamp_of(offer: Offer, backend_id: str, lowering: object) -> BlobStamp:
    """Who makes the blobs of `lowering`; one that was registered in this process is named by its top package."""
    distribution, version = offer.distribution, offer.version
    if distribution == IN_PROCESS:
        distribution = offer.value.partition(":")[0].partition(".")[0]
    return BlobStamp(backend_id, distribution, version, int(getattr(lowering, "blob_version", 1)))


# ---- failures --------------------------------------------------------------------------------------

_MAX_NAMED = 8  # nodes listed in a message; a partition can hold thousands


def _call(
    function: Callable[_P, _R],
    offer: Offer,
    modules: Mapping[str, Sequence[LoweredBackendModule]],
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> _R | _Refusal:
    programs = [module.original_module for group in modules.values() for module in group]
    try:
        with _free_sizes(programs), unchanged_weights(programs):
            return function(*args, **kwargs)
    except _FixedSizes as sizes:
        told = (
            f"it took the example's size for every call's ({sizes}): int(), or a comparison, of a size that is a"
            " torch.SymInt does; it has to compile for each size, or its partitioner to leave what it cannot"
        )
        raise _failure(offer, modules, told) from None
    except ChangedWeight as name:
        told = f"it changed {str(name)!r}, a weight of the user's model, which is spoilt now: it has to change a copy"
        raise _failure(offer, modules, told) from None
    except (UnsupportedOperator, PreprocessError) as error:
        return _Refusal(error)
    except PluginUnavailable:
        raise
    except DelegraphError as error:
        raise _failure(offer, modules, str(error)) from error
    except FOREIGN as error:
        raise _failure(offer, modules, cause_of(error)) from error


class _FixedSizes(Exception):
    """Sizes that the model leaves free are numbers now; its text lists them."""


@contextmanager
def _free_sizes(programs: Sequence[ExportedProgram]) -> Iterator[None]:
    """Raises `_FixedSizes` when the `with` block has made a number of a symbol: the file would run with that size
    alone."""
    modes = [fake_mode_of(program) for program in programs]
    before = [fixed_sizes(mode).items() for mode in modes]
    yield
    fixed = {size for mode, known in zip(modes, before, strict=True) for size in fixed_sizes(mode).items() - known}
    if fixed:
        raise _FixedSizes(", ".join(f"{symbol} is {number}" for symbol, number in sorted(fixed)))


def _check_shape(
    results: Mapping[str, Sequence[PreprocessResult]],
    modules: Mapping[str, Sequence[LoweredBackendModule]],
    offer: Offer,
) -> None:
    expected = {method: len(group) for method, group in modules.items()}
    try:
        got: object = {method: len(results[method]) for method in results}
    except TypeError:
        got = type(results).__name__
    if got != expected:
        raise _failure(offer, modules, f"preprocess_multimethod returned {got} results by method instead of {expected}")


def _checked(result: object, offer: Offer, modules: Mapping[str, Sequence[LoweredBackendModule]]) -> PreprocessResult:
    if not isinstance(result, PreprocessResult):
        raise _failure(offer, modules, f"preprocess returned {type(result).__name__} instead of a PreprocessResult")
    blobs = {"": result.processed_bytes, **{f"variant {v.name!r}: ": v.processed_bytes for v in result.variants}}
    for which, blob in blobs.items():
        if not isinstance(blob, (bytes, bytearray, memoryview)):
            raise _failure(offer, modules, f"{which}processed_bytes is {type(blob).__name__} instead of bytes")
    names = [result.variant, *(variant.name for variant in result.variants)]
    if result.variants and (len({*names}) < len(names) or not all(names)):
        raise _failure(offer, modules, f"its blobs are called {names}; each of several has a name of its own")
    return result


def _failure(offer: Offer, modules: Mapping[str, Sequence[LoweredBackendModule]], cause: str) -> PreprocessError:
    parts = "".join(
        f"\n  partition: {_describe(method, module)}"
        for method, group in modules.items()
        for module in group[:_MAX_NAMED]
    )
    return PreprocessError(f"preprocess of {offer} failed: {cause}{parts}")


def _describe(method: str, module: LoweredBackendModule) -> str:
    names = [node.name for node in module.original_module.graph.nodes if node.op == "call_function"]
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"tag {module.tag!r} of method {method!r}: {', '.join(names[:_MAX_NAMED])}{more}"
