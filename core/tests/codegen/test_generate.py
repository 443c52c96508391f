"""The generated module: its text, and that it is a kernel library that programs run on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import delegraph
from delegraph.aot.config import ExecutorchBackendConfig
from delegraph.codegen.check import registrations
from delegraph.codegen.generate import generated_module
from delegraph.interfaces import KernelLibrary

YAML = """\
- func: sample_ops::scaled.out(Tensor x, float factor, int offset=0, *, Tensor(a!) out) -> Tensor(a!)
  type_alias: {T0: [Float, Double]}
  dim_order_alias: {D0: [0, 1]}
  kernels:
    - arg_meta: {x: [T0, D0], out: [T0, D0]}
      kernel_name: sample_ops.kernels:scaled_matrix
    - arg_meta: null
      kernel_name: sample_ops.more_kernels:scaled

- op: sample_ops::put
  kernels: [{arg_meta: null, kernel_name: "sample_ops.kernels:put"}]

- op: neg.out
  kernels: [{arg_meta: null, kernel_name: "sample_ops.more_kernels:library"}]

- op: native_layer_norm.out
  type_alias: {T: [BFloat16]}
  dim_order_alias: {D: [0, 1, 2, 3, 4], V: [0]}
  kernels:
    - arg_meta: {input: [T, D], weight: [T, V], bias: [T, V], out0: [T, D], out1: [T, D], out2: [T, D]}
      kernel_name: sample_ops.kernels:any_call

- op: scatter.src_out
  kernels: [{arg_meta: null, kernel_name: "sample_ops.kernels:any_call"}]
"""

GOLDEN = '''\
"""The kernel library 'sample-ops': what ../kernels.yaml lists.

`delegraph codegen` generated this module; to change it, change that file and generate it again.
"""

# isort: skip_file
from __future__ import annotations

from delegraph.interfaces import KernelLibrary

from sample_ops.kernels import (
    any_call,
    put,
    scaled_matrix,
)
from sample_ops.more_kernels import (
    library as sample_ops_more_kernels_library,
    scaled,
)

library = KernelLibrary("sample-ops")

library.kernel(
    "sample_ops::scaled.out",
    dtypes=["float32", "float32"],
    dim_orders=[(0, 1), (0, 1)],
)(scaled_matrix)
library.kernel(
    "sample_ops::scaled.out",
    dtypes=["float64", "float64"],
    dim_orders=[(0, 1), (0, 1)],
)(scaled_matrix)
library.kernel("sample_ops::scaled.out")(scaled)
library.kernel("sample_ops::put")(put)
library.kernel("aten::neg.out")(sample_ops_more_kernels_library)
library.kernel(
    "aten::native_layer_norm.out",
    dtypes=["bfloat16", "bfloat16", "bfloat16", "bfloat16", "bfloat16", "bfloat16"],
    dim_orders=[
        (0, 1, 2, 3, 4),
        (0,),
        (0,),
        (0, 1, 2, 3, 4),
        (0, 1, 2, 3, 4),
        (0, 1, 2, 3, 4),
    ],
)(any_call)
library.kernel("aten::scatter.src_out")(any_call)
'''


def generated() -> str:
    return generated_module(registrations(YAML, "kernels.yaml"), "sample-ops", "../kernels.yaml")


def library() -> KernelLibrary:
    names: dict[str, Any] = {}
    exec(generated(), names)
    made: KernelLibrary = names["library"]
    return made


def test_the_text() -> None:
    assert generated() == GOLDEN


def test_two_functions_of_one_name() -> None:
    made = registrations(YAML.replace("scaled_matrix", "scaled"), "kernels.yaml")
    written = generated_module(made, "both", "kernels.yaml")
    assert "from sample_ops.kernels import (\n    any_call,\n    put,\n    scaled,\n)" in written
    assert "    scaled as sample_ops_more_kernels_scaled,\n" in written
    assert 'library.kernel("sample_ops::scaled.out")(sample_ops_more_kernels_scaled)\n' in written


def test_it_imports_no_torch(tmp_path: Path) -> None:
    module = tmp_path / "registration.py"
    module.write_text(generated())
    script = "import sys; sys.modules['torch'] = None; import registration; print(len(list(registration.library)))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": f"{tmp_path}:{Path(__file__).parent}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(3, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.ops.sample_ops.put(self.cache, x[0], 1)
        return torch.ops.sample_ops.scaled(torch.neg(self.cache), 0.5, 2)


def test_a_program_runs_on_the_generated_library() -> None:
    kernels = [library(), "portable"]
    lowered = delegraph.lower(Model(), (torch.zeros(2, 4),), config=ExecutorchBackendConfig(kernels=kernels))
    run = delegraph.load(bytes(lowered), kernels=kernels)
    x = torch.randn(2, 4)
    np.testing.assert_array_equal(run(x.numpy()), Model()(x).numpy())
    chosen = run["forward"].method.kernels
    assert {op: chosen[op] for op in ("sample_ops::put", "sample_ops::scaled.out", "aten::neg.out")} == dict.fromkeys(
        ("sample_ops::put", "sample_ops::scaled.out", "aten::neg.out"), "sample-ops"
    )


def test_names_that_would_end_a_string() -> None:
    source = '"""\nimport evil\n"""\\'
    text = generated_module([], 'a"b', source)
    namespace: dict[str, Any] = {}
    exec(compile(text, "generated", "exec"), namespace)
    assert namespace["library"].name == 'a"b'
    assert source in namespace["__doc__"]
