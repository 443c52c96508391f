"""Delegates without blobs -> the same with blobs: every backend compiles its partitions of all methods, stamped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ParamSpec, TypeVar

from delegraph.aot.delegation.lowered_module import Compiled, LoweredBackendModule, lowered_modules, with_blobs
from delegraph.aot.delegation.lowerings import find_lowering
from delegraph.errors import DelegraphError, PluginUnavailable, PreprocessError, UnsupportedOperator
from delegraph.interfaces.lowering import BackendDetails, PreprocessResult
from delegraph.interfaces.stamp import BlobStamp
from delegraph.plugins.discovery import Offer
from delegraph.plugins.registry import IN_PROCESS, PluginRegistry, default_registry

__all__ = ["compile_delegates", "stamp_of"]

_GROUP = "lowerings"

_P = ParamSpec("_P")
_R = TypeVar("_R")


def compile_delegates(
    modules: Mapping[str, Sequence[LoweredBackendModule]], plugins: PluginRegistry | None = None
) -> Compiled:
    """These modules, by method, with their blobs: new ones, by the old.

    Each backend's `preprocess_multimethod` is called once, with all its partitions of all methods; those that hold
    other delegates in a call of their own, after those. Raises `PreprocessError` naming the partitions, the plug-in and
    the cause; `UnsupportedOperator` and `PluginUnavailable` (a compiler is not installed) pass through.
    """
    plugins = plugins or default_registry()
    compiled: dict[LoweredBackendModule, LoweredBackendModule] = {}
    for ready in _innermost_first(modules):
        for backend_id in dict.fromkeys(module.backend_id for group in ready.values() for module in group):
            mine = {method: [m for m in group if m.backend_id == backend_id] for method, group in ready.items()}
            asked = {method: group for method, group in mine.items() if group}
            compiled |= _compile(asked, backend_id, plugins, compiled)
    return compiled


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


def _compile(
    modules: dict[str, list[LoweredBackendModule]], backend_id: str, plugins: PluginRegistry, inner: Compiled
) -> Compiled:
    """The modules, all of one backend, with their blobs; `inner` are the delegates that may stand in them."""
    offer, lowering = find_lowering(backend_id, plugins)
    stamp = stamp_of(offer, backend_id, lowering)
    specs = {method: [list(m.compile_specs) for m in group] for method, group in modules.items()}
    programs = {method: [with_blobs(m.program_to_compile(), inner) for m in group] for method, group in modules.items()}
    if _compiles_one_by_one(lowering):
        preprocess = plugins.bound(_GROUP, lowering, "preprocess")
        results = {
            method: [
                _call(preprocess, offer, {method: [m]}, p, s)
                for m, p, s in zip(group, programs[method], specs[method], strict=True)
            ]
            for method, group in modules.items()
        }
    else:
        together = plugins.bound(_GROUP, lowering, "preprocess_multimethod")
        results = _call(together, offer, modules, programs, specs)
        _check_shape(results, modules, offer)
    return {
        module: module.compiled(_checked(result, offer, {method: [module]}), stamp)
        for method, group in modules.items()
        for module, result in zip(group, results[method], strict=True)
    }


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
) -> _R:
    try:
        return function(*args, **kwargs)
    except (UnsupportedOperator, PreprocessError, PluginUnavailable):
        raise
    except DelegraphError as error:
        raise _failure(offer, modules, str(error)) from error
    except Exception as error:
        raise _failure(offer, modules, f"{type(error).__name__}: {error}") from error


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
    if not isinstance(result.processed_bytes, (bytes, bytearray, memoryview)):
        raise _failure(offer, modules, f"processed_bytes is {type(result.processed_bytes).__name__} instead of bytes")
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
