"""`python -m plugins.executorch.tests.bridge.table`: which of ExecuTorch's backends lower what, here; into the docs.

A small float model and its quantized form are lowered onto every backend; the table in `docs/executorch-backends.md`
is written anew. Run it in ExecuTorch's environment.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import torch

import delegraph
from delegraph.aot import ExecutorchBackendConfig
from delegraph.errors import DelegraphError

PAGE = Path(__file__).parents[4] / "docs" / "executorch-backends.md"
NAMES = ("xnnpack", "ethos-u", "tosa", "vgf", "vulkan", "openvino", "coreml", "mps")
OTHERS = {
    "Qualcomm": "backends.qualcomm.partition.qnn_partitioner",
    "MediaTek": "backends.mediatek",
    "Samsung": "backends.samsung.partition.enn_partitioner",
    "NXP": "backends.nxp.neutron_partitioner",
    "MLX": "backends.mlx",
    "CUDA": "backends.cuda.cuda_partitioner",
    "Metal (AOTInductor)": "backends.apple.metal.metal_partitioner",
    "Cadence": "backends.cadence.aot.compiler",
    "Cortex-M": "backends.cortex_m.passes",
}
MARKS = re.compile(r"(<!-- table -->\n).*(<!-- end -->)", re.DOTALL)


class Net(torch.nn.Module):
    """A convolution, pooling, a linear layer, softmax: five calls for a backend."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.head = torch.nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.avg_pool2d(self.conv(x).relu(), 2, 2)
        scores: torch.Tensor = self.head(y.flatten(1)).softmax(-1)
        return scores


def models() -> dict[str, torch.export.ExportedProgram]:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    torch.manual_seed(0)
    args = (torch.randn(1, 3, 4, 4),)
    exported = torch.export.export(Net().eval(), args)
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(exported.module(check_guards=False), quantizer)
    prepared(*args)
    return {"float": exported, "int8": torch.export.export(convert_pt2e(prepared), args)}


def outcome(backend: str, program: torch.export.ExportedProgram) -> str:
    try:
        config = ExecutorchBackendConfig(check_kernels=False)
        report = delegraph.lower(program, backends=[backend], config=config).report.methods["forward"]
    except DelegraphError as error:
        return _short(str(error))
    total = report.delegated_nodes + len(report.leftovers)
    return f"{report.delegated_nodes} of {total} calls, {len(report.delegates)} delegates"


def _short(text: str) -> str:
    """The cause without who reports it: one line of a table."""
    line = text.splitlines()[0].rpartition("failed: ")[2]
    line = re.sub(r" \(/\S+\)", "", line).replace("|", "/")
    return line if len(line) < 160 else line[:157] + "…"


def rows() -> list[str]:
    programs = models()
    found = []
    for name in NAMES:
        options = "{tosa_spec=TOSA-1.0+FP+INT}" if name == "tosa" else ""
        told = [outcome(f"executorch:{name}{options}", program) for program in programs.values()]
        found.append(f"| `executorch:{name}` | {told[0]} | {told[1]} |")
    for name, module in OTHERS.items():
        problem = importable(module)
        found.append(f"| {name} | {problem} | |")
    return found


def importable(module: str) -> str:
    from delegraph_executorch.bridge.imports import executorch

    try:
        executorch(module)
    except DelegraphError as error:
        return _short(str(error))
    return "imports; hand its partitioner to `lower`"


def main() -> None:
    warnings.simplefilter("ignore")
    head = ["| backend | float model | int8 model |", "| --- | --- | --- |"]
    table = "\n".join([*head, *rows()]) + "\n"
    print(table)
    PAGE.write_text(MARKS.sub(lambda m: m[1] + table + m[2], PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
