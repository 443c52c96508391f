"""ExecuTorch's `executorch.extension.export_util.utils`: model -> edge program -> `.pte`, in one call each.

`delegraph.lower` is the one call for new code.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import torch
from torch.export import ExportedProgram, export

from delegraph import aot
from delegraph.aot import EdgeCompileConfig
from delegraph_executorch.exir.backend_config import ExecutorchBackendConfig
from delegraph_executorch.exir.program._program import EdgeProgramManager, ExecutorchProgramManager, to_edge

_EDGE_COMPILE_CONFIG = EdgeCompileConfig(_check_ir_validity=True)


def _to_core_aten(
    model: torch.nn.Module,
    example_inputs: tuple[Any, ...],
    *,
    example_kwarg_inputs: dict[str, Any] | None = None,
    dynamic_shapes: dict[str, Any] | tuple[Any, ...] | None = None,
    strict: bool = True,
    verbose: bool = True,
) -> ExportedProgram:
    """The exported model. Raises `ValueError` for what is not a module."""
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"expected a torch.nn.Module, got {type(model)}")
    exported = export(model, example_inputs, example_kwarg_inputs, dynamic_shapes=dynamic_shapes, strict=strict)
    if verbose:
        logging.info("Core ATen graph:\n%s", exported.graph)
    return exported


def _core_aten_to_edge(
    core_aten_exir_ep: ExportedProgram,
    edge_constant_methods: Mapping[str, Any] | None = None,
    edge_compile_config: EdgeCompileConfig | None = None,
    verbose: bool = True,
    generate_etrecord: bool = False,
) -> EdgeProgramManager:
    """The edge program of an exported one; unless told otherwise its dialect is not verified."""
    config = edge_compile_config or EdgeCompileConfig(_check_ir_validity=False)
    edge = to_edge(core_aten_exir_ep, edge_constant_methods, config, generate_etrecord)
    if verbose:
        logging.info("Exported graph:\n%s", edge.exported_program())
    return edge


def export_to_edge(
    model: torch.nn.Module,
    example_inputs: tuple[Any, ...],
    *,
    edge_constant_methods: Mapping[str, Any] | None = None,
    edge_compile_config: EdgeCompileConfig | None = _EDGE_COMPILE_CONFIG,
    verbose: bool = True,
    generate_etrecord: bool = False,
    **options: Any,
) -> EdgeProgramManager:
    """Export a model and bring it to the edge dialect.

    `options` are `example_kwarg_inputs`, `dynamic_shapes` and `strict`, as `torch.export.export` takes them.
    """
    exported = _to_core_aten(model, example_inputs, verbose=verbose, **options)
    return _core_aten_to_edge(exported, edge_constant_methods, edge_compile_config, verbose, generate_etrecord)


def export_to_exec_prog(
    model: torch.nn.Module,
    example_inputs: tuple[Any, ...],
    *,
    backend_config: ExecutorchBackendConfig | None = None,
    **options: Any,
) -> ExecutorchProgramManager:
    """Export a model, in eval mode, and make a program of it. `options` are those of `export_to_edge`."""
    return export_to_edge(model.eval(), example_inputs, **options).to_executorch(backend_config)


def save_pte_program(
    prog: ExecutorchProgramManager | aot.ExecutorchProgramManager, model_name: str, output_dir: str = ""
) -> str:
    """Write the `.pte` as `<output_dir>/<model_name>.pte`, or as `model_name` if that ends so; its `.ptd` files go into
    `output_dir`. Returns the path.

    Raises `OSError` where ExecuTorch logs and returns the path all the same.
    """
    path = model_name if model_name.endswith(".pte") else os.path.join(output_dir, f"{model_name}.pte")
    with open(path, "wb") as file:
        prog.write_to_file(file)
    prog.write_tensor_data_to_file(output_dir or os.curdir)
    logging.info("Saved exported program to %s", path)
    return path
