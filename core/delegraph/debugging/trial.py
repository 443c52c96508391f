"""A program, its inputs and torch's results -> a verdict: it is lowered onto backends, loaded, run and compared.

`python -m delegraph.debugging.trial` serves `Judge`, in a process that may die of it:

    {"prepare": an exported program's file, "backends": names}     its functional form, and who takes what
    {"try": a program's file, "expected": torch's results, …}      a verdict
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from delegraph.aot import pipeline
from delegraph.aot.delegation.backends import Backend
from delegraph.aot.delegation.compile import compile_or_refuse
from delegraph.debugging.prepared import lowering_of, prepared
from delegraph.debugging.tolerance import difference
from delegraph.debugging.verdict import Kind, Verdict
from delegraph.devtools.worker import serve
from delegraph.errors import cause_of
from delegraph.plugins.plugin_spec import parse_plugins
from delegraph.runtime.module import load

__all__ = ["answer", "compiled", "tried"]

Options: TypeAlias = Mapping[str, Mapping[str, bool | int | str]]


def tried(
    program: ExportedProgram,
    expected: Sequence[torch.Tensor | None],
    allowed: Sequence[float],
    backends: Sequence[Backend],
    backend_options: Options | None = None,
) -> Verdict:
    """The verdict on a program, for its example inputs. `expected` are torch's results, and None for what is no tensor;
    `allowed` says how far off each may be. Whatever is raised is a verdict."""
    doing = "lowering"
    try:
        lowered = compiled(program, backends)
        if isinstance(lowered, Verdict):
            return lowered
        doing = "loading"
        module = load(lowered, backend_options=backend_options)
        doing = "running"
        args, kwargs = program.example_inputs or ((), {})
        results = pytree.tree_leaves(module(*args, **kwargs))
    except Exception as error:
        return Verdict(Kind.ERROR, f"{doing}: {cause_of(error)}")
    for position, (actual, value, limit) in enumerate(zip(results, expected, allowed, strict=True)):
        apart = "" if value is None else difference(actual, value, limit)
        if apart:
            return Verdict(Kind.WRONG, f"result {position}: {apart}")
    return Verdict(Kind.RIGHT)


def compiled(program: ExportedProgram, backends: Sequence[Backend]) -> bytes | Verdict:
    """The `.pte`, or the first refusal of a backend: users do not see those, for the calls are left to others then."""
    cut = pipeline.run(lowering_of(program, backends), [*pipeline.TO_PARTITION, pipeline.PARTITION, pipeline.KERNELS])
    modules = {method: [part.lowered_module for part in own] for method, own in cut.delegated.partitions.items()}
    blobs, refused = compile_or_refuse(modules, cut.plugins)
    for error in refused.values():
        return Verdict(Kind.REFUSED, cause_of(error))
    planned = pipeline.run(cut, pipeline.EXECUTORCH)
    result = pipeline.run(planned.with_blobs(blobs), [pipeline.ASSEMBLE]).result
    assert result is not None
    return bytes(result.buffer)


# ---- in a process of its own ---------------------------------------------------------------------------------------


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request of `Judge`; "error" says why there is none."""
    backends = parse_plugins(request["backends"])
    if "prepare" in request:
        return _prepare(request["prepare"], backends)
    try:
        program = torch.export.load(request["try"])
    except Exception as error:
        return _told(Verdict(Kind.ERROR, f"reading: {cause_of(error)}"))
    expected = torch.load(request["expected"], weights_only=True)
    return _told(tried(program, expected, request["allowed"], backends, request["options"]))


def _told(verdict: Verdict) -> dict[str, str]:
    return {"kind": verdict.kind.value, "said": verdict.said}


def _prepare(path: str, backends: Sequence[Backend]) -> dict[str, Any]:
    """Write the functional form in the place of the exported program."""
    try:
        program, taken = prepared(torch.export.load(path), backends)
        torch.export.save(program, path)
    except Exception as error:
        return {"error": cause_of(error)}
    return {"taken": [asdict(partition) for partition in taken]}


def _import_operators() -> None:
    from torch.ao.quantization.fx import _decomposed  # noqa: F401  # a quantized program calls its operators


if __name__ == "__main__":
    serve(answer, _import_operators)
