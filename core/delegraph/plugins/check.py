"""Offers -> does each load? In a process of its own, with a time limit: a plug-in may hang, crash or import torch.

`check` starts `python -m delegraph.plugins.check`, which reads a request as JSON and answers with a line of JSON for
each offer. Torch-free plug-ins get a process each, so that none is spared the blame for another's import of torch;
those that need torch share one, and it is started anew after the one that killed it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from time import perf_counter
from typing import TYPE_CHECKING, Any

from delegraph.deprecation import PluginDeprecationWarning
from delegraph.errors import FOREIGN, PluginError, PluginUnavailable, cause_of
from delegraph.interfaces.backend import BackendDevice
from delegraph.interfaces.stamp import BlobStamp
from delegraph.lazy_dataclass import dataclass, field
from delegraph.plugins.discovery import Offer
from delegraph.plugins.hookspecs import GROUPS, group_named
from delegraph.program.kernel_calls import Need
from delegraph.program.schema import ScalarType

if TYPE_CHECKING:
    from delegraph.interfaces.kernel import Kernel
    from delegraph.plugins.registry import PluginRegistry

__all__ = ["CheckResult", "check"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of loading a plug-in. `seconds` is the time that it adds to a process that has NumPy already.

    `kind` is the exception's name, or "Timeout" or "Crash". `operators` are a kernel library's; `unavailable` is why it
    cannot be used here, though it is sound; `verdicts` are a backend's on the stamps that were asked about; `ranks`
    are a kernel library's answers to the kernels that were asked for: "partial", "fallback" or "" for none. One that
    is `on_request` is only asked where the user names it. `backend_id` is the backend of a partitioner's delegates, if
    it says so before it sees a program. `deprecated` are the parts of the plug-in API that it uses and that will go.
    `devices` are a backend's, if it was asked.
    """

    offer: Offer
    error: str = ""
    kind: str = ""
    seconds: float = 0.0
    operators: tuple[str, ...] = ()
    unavailable: str = ""
    verdicts: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()
    on_request: bool = False
    backend_id: str = ""
    deprecated: tuple[str, ...] = ()
    devices: tuple[BackendDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions of a program: the verdicts of backends, by id, on `stamps`; whether libraries have `kernels`. And
    whether backends are asked for their `devices`."""

    stamps: Mapping[str, Sequence[BlobStamp]] = field(default_factory=dict)
    kernels: Sequence[Need] = ()
    devices: bool = False


def check(offers: Iterable[Offer], limit: float = 60.0, questions: Questions | None = None) -> list[CheckResult]:
    """Load every offer elsewhere, each within `limit` seconds, and ask the questions."""
    offers = list(offers)
    lone = [[offer] for offer in offers if group_named(offer.group).torch_free]
    shared = [offer for offer in offers if not group_named(offer.group).torch_free]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # each of them waits for a process
        checked = list(pool.map(lambda batch: _check_batch(batch, limit, questions or Questions()), [shared, *lone]))
    return [result for results in [*checked[1:], checked[0]] for result in results]


def _check_batch(batch: Sequence[Offer], limit: float, questions: Questions) -> list[CheckResult]:
    results: list[CheckResult] = []
    while len(results) < len(batch):
        rest = batch[len(results) :]
        lines, death = _run(rest, limit, questions)
        results += [_result(offer, json.loads(line)) for offer, line in zip(rest, lines, strict=False)]
        if len(lines) < len(rest):
            results.append(CheckResult(rest[len(lines)], *death))
    return results


def _run(batch: Sequence[Offer], limit: float, questions: Questions) -> tuple[list[str], tuple[str, str]]:
    """The worker's lines, and how it died if it did before the last one."""
    request = {
        "path": sys.path,
        "offers": [asdict(offer) for offer in batch],
        "stamps": {backend: [asdict(stamp) for stamp in judged] for backend, judged in questions.stamps.items()},
        "kernels": questions.kernels,
        "devices": questions.devices,
    }
    # Our own package must be found before the request, which carries the rest of the path, is read.
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    search = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "delegraph.plugins.check"],
            input=json.dumps(request).encode(),
            capture_output=True,
            check=False,
            env={**os.environ, "PYTHONPATH": search},
            timeout=limit * len(batch),
        )
    except subprocess.TimeoutExpired as expired:
        return _lines(expired.stdout), (f"it did not load within {limit:g} s", "Timeout")
    last_words = _lines(done.stderr)[-1:] or [""]
    return _lines(done.stdout), (f"its process ended with code {done.returncode}: {last_words[0]}", "Crash")


def _lines(output: bytes | None) -> list[str]:
    """The complete lines."""
    return (output or b"").decode(errors="replace").split("\n")[:-1]


def _result(offer: Offer, answer: Mapping[str, object]) -> CheckResult:
    fields: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in answer.items()}
    fields["devices"] = tuple(BackendDevice(**device) for device in fields.get("devices", ()))
    return CheckResult(offer, **fields)


# ---- in the worker -------------------------------------------------------------------------------------


def _serve() -> None:
    request = json.load(sys.stdin)
    sys.path[:] = request["path"]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a plug-in's prints go to stderr, not between the answers
    for group in GROUPS.values():
        _ = group.interface  # NumPy and the contracts are the host's cost, not a plug-in's
    stamps = {backend: [BlobStamp(**stamp) for stamp in judged] for backend, judged in request["stamps"].items()}
    kernels = [(op, tuple((ScalarType(dtype), tuple(order)) for dtype, order in key)) for op, key in request["kernels"]]
    for fields in request["offers"]:
        answers.write(json.dumps(_answer(Offer(**fields), Questions(stamps, kernels, request["devices"]))) + "\n")
        answers.flush()


def _answer(offer: Offer, questions: Questions) -> dict[str, object]:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", PluginDeprecationWarning)
        told = _loaded(offer, questions)
    deprecated = [str(each.message) for each in heard if each.category is PluginDeprecationWarning]
    return {**told, "deprecated": list(dict.fromkeys(deprecated))}


def _loaded(offer: Offer, questions: Questions) -> dict[str, object]:
    from delegraph.plugins.registry import PluginRegistry

    registry = PluginRegistry([offer])
    start = perf_counter()
    try:
        plugin = registry.load(offer.group, offer.name)
        seconds = perf_counter() - start
        return {"seconds": seconds, **_facts(registry, offer, plugin, questions)}
    except PluginUnavailable as error:
        return {"unavailable": str(error), "seconds": perf_counter() - start}
    except PluginError as error:
        return {"error": str(error), "kind": type(error).__name__, "seconds": perf_counter() - start}
    except FOREIGN as error:
        return {"error": f"{offer}: {cause_of(error)}", "kind": type(error).__name__}


def _facts(registry: PluginRegistry, offer: Offer, plugin: Any, questions: Questions) -> dict[str, object]:
    if offer.group == "delegraph.partitioners":
        spec = getattr(registry.create(offer.group, offer.name), "delegation_spec", None)
        return {"backend_id": str(getattr(spec, "backend_id", ""))}
    if offer.group == "delegraph.kernels":
        ranks = [_rank(plugin.lookup(op, key)) for op, key in questions.kernels]
        return {"operators": sorted(plugin.operator_names()), "ranks": ranks, "on_request": plugin.on_request}
    if offer.group != "delegraph.backends":
        return {}
    available = plugin.is_available()
    why = "; ".join(filter(None, (getattr(available, "reason", ""), getattr(available, "fix", ""))))
    judged = [plugin.check(stamp) for stamp in questions.stamps.get(offer.name, ())]
    return {
        "unavailable": "" if available else why or "it gives no reason",
        "verdicts": [f"{verdict.verdict.value}: {verdict.reason}" for verdict in judged],
        "devices": [asdict(device) for device in plugin.devices()] if questions.devices else [],
    }


def _rank(kernel: Kernel | None) -> str:
    if kernel is None:
        return ""
    return "fallback" if kernel.key is None else "partial"


if __name__ == "__main__":
    _serve()
