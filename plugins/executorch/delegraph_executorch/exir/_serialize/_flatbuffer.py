"""JSON <-> flatbuffers of any schema, by flatc (ExecuTorch `exir/_serialize/_flatbuffer.py`).

Delegraph reads and writes programs itself and brings no flatc. A backend that compiles JSON by a schema of its own
needs one: the program that `FLATC_EXECUTABLE` names, or `flatc` on the path.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final, NoReturn

from delegraph.errors import LoweringError
from delegraph.program import read_tables
from delegraph_executorch.exir._serialize._flatbuffer_program import _FlatbufferResult

__all__ = ["_FlatbufferResult", "_flatc_compile", "_flatc_decompile", "_program_flatbuffer_to_json"]


def _get_flatc_path() -> str:
    """Where flatc is. Raises `LoweringError` if there is none."""
    named = os.environ.get("FLATC_EXECUTABLE", "flatc")
    found = shutil.which(named)
    if found is None:
        raise LoweringError(
            f"there is no {named!r} to compile a flatbuffer schema with: install flatc (conda install flatbuffers, apt"
            " install flatbuffers-compiler) and put it on the path, or name it in FLATC_EXECUTABLE; programs themselves"
            " are written without it (delegraph.program.write_tables)"
        )
    return found


def _run_flatc(args: Sequence[str]) -> None:
    """Run flatc. Raises `LoweringError` with what it said if it fails."""
    done = subprocess.run([_get_flatc_path(), *args], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LoweringError(f"flatc {' '.join(args)} failed ({done.returncode}): {done.stdout}{done.stderr}")


def _flatc_compile(output_dir: str, schema_path: str, json_path: str) -> None:
    """Write the flatbuffer of `json_path` into `output_dir`."""
    _run_flatc(["--binary", "-o", output_dir, schema_path, json_path])


def _flatc_decompile(output_dir: str, schema_path: str, bin_path: str, flatc_args: Sequence[str] | None = None) -> None:
    """Write the JSON of `bin_path` into `output_dir`."""
    options = ["--json", "--defaults-json", "--strict-json", *(flatc_args or ())]
    _run_flatc([*options, "-o", output_dir, schema_path, "--", bin_path])


def _program_flatbuffer_to_json(program_flatbuffer: bytes) -> bytes:
    """The tables of a program as JSON; enums are their numbers."""
    return json.dumps(read_tables(program_flatbuffer), default=list).encode()


_SCHEMA_EDITING: Final = frozenset(
    {
        "_ResourceFiles",
        "_SchemaFileIdentifierGetter",
        "_SchemaInfo",
        "_SchemaMaxAlignmentGetter",
        "_patch_schema_alignment",
        "_prepare_schema",
    }
)
"""How ExecuTorch gets a program's text to flatc."""


def __getattr__(name: str) -> NoReturn:
    """Raises `LoweringError` for what edits the text of a program's schema, AttributeError for what is not known."""
    if name in _SCHEMA_EDITING:
        raise LoweringError(
            f"{name} prepares a program's schema for flatc, and programs are written without it here: use"
            " serialize_pte_binary of delegraph_executorch.exir._serialize._program, or"
            " delegraph.program.serialize_program; both take the alignments as arguments"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
