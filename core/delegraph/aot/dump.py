"""`DELEGRAPH_DUMP=stage[,stage]` -> each of these stages' programs as text, before and behind it, to be compared.

Files: `<folder>/<stage>.<method>.before.txt` and `.after.txt`; the folder is `DELEGRAPH_DUMP_DIR`, or `delegraph-dump`
where the process runs. A stage that gives a finished program writes that program's text. The texts of a backend's
compiler about its passes, by name in `PreprocessResult._delegate_info_meta`, are in
`<stage>.<method>.<delegate>.<pass>.txt`; files for its engine, if it made some, are `<stage>.<method>.<delegate>.onnx`
or whatever these are called.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from torch.export import ExportedProgram

from delegraph.aot.delegation.lowered_module import LoweredBackendModule, lowered_modules
from delegraph.aot.graph.text import program_text
from delegraph.aot.stage import Lowering, Stage
from delegraph.errors import LoweringError, PluginNotFound
from delegraph.interfaces.lowering import NamedDataStoreOutput
from delegraph.plugins.blob_views import engine_files
from delegraph.plugins.discovery import did_you_mean
from delegraph.plugins.registry import PluginRegistry
from delegraph.program.files.atomic_file import write_together
from delegraph.program.schema import Buffer
from delegraph.program.text.to_text import to_text

__all__ = ["Dumps"]

VARIABLE: Final = "DELEGRAPH_DUMP"
FOLDER: Final = "DELEGRAPH_DUMP_DIR"


class Dumps:
    """Writes the programs around the stages of these names."""

    def __init__(self, stages: Sequence[str], folder: Path) -> None:
        self._stages = frozenset(stages)
        self._folder = folder

    @classmethod
    def asked_for(cls, environ: Mapping[str, str], known: Sequence[str]) -> list[Dumps]:
        """The dumps that the environment asks for. Raises `LoweringError` for a stage that is not `known`."""
        stages = [name.strip() for name in environ.get(VARIABLE, "").split(",") if name.strip()]
        for name in stages:
            if name not in known:
                hint = did_you_mean(name, known)
                raise LoweringError(f"{VARIABLE} names no stage {name!r}{hint}; the stages are {', '.join(known)}")
        return [cls(stages, Path(environ.get(FOLDER, "delegraph-dump")))] if stages else []

    def started(self, stage: Stage, methods: Sequence[str], lowering: Lowering, remaining: Sequence[Stage]) -> None:
        self._write(stage, methods, lowering, "before")

    def done(self, stage: Stage, methods: Sequence[str], lowering: Lowering, seconds: float) -> None:
        self._write(stage, methods, lowering, "after")

    def _write(self, stage: Stage, methods: Sequence[str], lowering: Lowering, when: str) -> None:
        if stage.name not in self._stages:
            return
        os.makedirs(self._folder, exist_ok=True)
        for method in methods:
            if method in lowering.programs:
                program = lowering.programs[method]
                (self._folder / f"{stage.name}.{method}.{when}.txt").write_text(program_text(program), encoding="utf-8")
                if when == "after":
                    self._write_delegates(f"{stage.name}.{method}", program, lowering.plugins)
        if lowering.result is not None:
            text = to_text(lowering.result.executorch_program)
            (self._folder / f"{stage.name}.program.{when}.txt").write_text(text, encoding="utf-8")

    def _write_delegates(self, name: str, program: ExportedProgram, plugins: PluginRegistry) -> None:
        for number, module in enumerate(lowered_modules(program.graph_module)):
            own = f"{name}.{module.backend_id}_{number}"
            told = module.meta.get("_delegate_info_meta")
            for step, text in told.items() if isinstance(told, Mapping) else ():
                if isinstance(text, str):
                    (self._folder / f"{own}.{step}.txt").write_text(text, encoding="utf-8")
            if module.is_compiled:
                files = _engine_files(own, module, plugins)
                write_together([(self._folder / file, pieces) for file, pieces in files.items()])


def _engine_files(name: str, module: LoweredBackendModule, plugins: PluginRegistry) -> Mapping[str, Sequence[Buffer]]:
    """The engine's files of the delegate; none if the runtime half of its backend is not installed."""
    store = module.named_data_store_output or NamedDataStoreOutput()
    named_data = {key: entry.data for key, entry in store.pte_data.items()}
    named_data |= {key: entry.data for tagged in store.external_data.values() for key, entry in tagged.items()}
    try:
        return engine_files(module.backend_id, name, module.processed_bytes, named_data, plugins)
    except PluginNotFound:
        return {}
