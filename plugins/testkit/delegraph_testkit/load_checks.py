"""Level `loads`: a plug-in is found, loads, and refuses requests that it cannot meet."""

from __future__ import annotations

import inspect
import warnings
from typing import Any, Final

from delegraph.errors import DelegraphError, UnknownOption
from delegraph.interfaces import Availability, KernelLibrary
from delegraph.plugins import Offer, PluginDeprecationWarning, default_registry
from delegraph_testkit.bench import Bench
from delegraph_testkit.no_torch import asked_for_torch
from delegraph_testkit.outcomes import Unclaimed

__all__ = [
    "answers_whether_it_is_available",
    "backends_of",
    "both_halves_are_installed",
    "kernels_fit_their_operators",
    "loads_with_torch",
    "loads_without_torch",
    "unknown_options_are_refused",
]

_NO_OPTION: Final = "no_option_is_called_this"
_TORCH_FREE: Final = ("delegraph.backends", "delegraph.kernels", "delegraph.memory_planners", "delegraph.plugins")
_FACTORIES: Final = ("delegraph.partitioners", "delegraph.quantizers", "delegraph.passes")


def both_halves_are_installed(bench: Bench) -> None:
    """One distribution has the partitioner, the half that compiles and the half that runs, under one id."""
    offers = _offers(bench)
    ids = {group: {o.name for o in offers if o.group == f"delegraph.{group}"} for group in ("lowerings", "backends")}
    for name in sorted(ids["lowerings"] ^ ids["backends"]):
        there, missing = ("lowerings", "backends") if name in ids["lowerings"] else ("backends", "lowerings")
        raise AssertionError(
            f"the id {name!r} is in delegraph.{there} and not in delegraph.{missing}: they have to match"
        )


def loads_with_torch(bench: Bench) -> str:
    """Everything that the distribution offers loads, and its factories work without options.

    Uses of deprecated parts of the plug-in API are told in the report; they are no fault yet.
    """
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", PluginDeprecationWarning)
        registry = default_registry()
        for offer in _offers(bench):
            registry.load(offer.group, offer.name)
            if offer.group in _FACTORIES:
                registry.create(offer.group, offer.name)
    deprecated = [str(each.message) for each in heard if each.category is PluginDeprecationWarning]
    return "; ".join(dict.fromkeys(deprecated))


def loads_without_torch(bench: Bench) -> None:
    """The parts that run on devices load where torch is not installed, and do not ask for it."""
    if bench.subject.claims.needs_torch:
        raise Unclaimed("its kernels are torch's own, as its claims say")
    for offer in _offers(bench):
        if offer.group in _TORCH_FREE:
            default_registry().load(offer.group, offer.name)
    asked = asked_for_torch()
    assert not asked, f"it tries to import torch, in {', '.join(dict.fromkeys(asked))}"


def kernels_fit_their_operators(bench: Bench) -> None:
    """Each kernel is of an operator that there is, as far as torch knows (`aten`), and takes its arguments."""
    library = default_registry().load("delegraph.kernels", bench.subject.name)
    schemas = {op: _schema(op) for op in sorted(library.operator_names())}
    for op, schema in schemas.items():
        assert schema is not None or not op.startswith("aten::"), f"torch has no operator {op}: no program calls it"
    for kernel in library if isinstance(library, KernelLibrary) else ():
        schema = schemas[kernel.op]
        if schema is None:
            continue
        names = ["context", *(argument.name for argument in schema.arguments)]
        try:
            inspect.signature(kernel.function).bind(*names)
        except TypeError as error:
            raise AssertionError(f"its kernel of {kernel.op} is called with ({', '.join(names)}): {error}") from error


def _schema(op: str) -> Any:
    """torch's schema of `op`, None if nobody registered it."""
    import torch

    namespace, _, name = op.partition("::")
    packet, _, overload = name.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")._schema
    except AttributeError:
        return None


def unknown_options_are_refused(bench: Bench) -> None:
    """An option that it does not have is an error."""
    group, name = bench.subject.group, bench.subject.name
    try:
        default_registry().create(group, name, {_NO_OPTION: 1})
    except UnknownOption:
        return
    except DelegraphError as error:
        raise AssertionError(
            f"the option {_NO_OPTION!r} gives {type(error).__name__}, not UnknownOption: {error}"
        ) from error
    raise AssertionError(f"the option {_NO_OPTION!r} is taken without a word")


def answers_whether_it_is_available(bench: Bench) -> str:
    """`is_available` says yes, or no with a reason, and never raises."""
    reasons = []
    for name, backend in backends_of(bench).items():
        answer = backend.is_available()
        assert isinstance(answer, Availability | bool), f"is_available() of {name} gives {answer!r}"
        if not answer:
            reason = getattr(answer, "reason", "")
            assert reason, f"{name} is not available and gives no reason: return Availability(False, reason, fix)"
            reasons.append(f"{name} is not available here: {reason}")
    return "; ".join(reasons)


def backends_of(bench: Bench) -> dict[str, Any]:
    """The backends of the subject's distribution, loaded, by id."""
    offers = [offer for offer in _offers(bench) if offer.group == "delegraph.backends"]
    return {offer.name: default_registry().load(offer.group, offer.name) for offer in offers}


def _offers(bench: Bench) -> list[Offer]:
    """The offers of the subject's distribution."""
    registry = default_registry()
    own = registry.find(bench.subject.group, bench.subject.name)
    return [offer for offer in registry.offers() if offer.distribution == own.distribution]
