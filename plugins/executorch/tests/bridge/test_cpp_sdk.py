"""The C++ SDK in ExecuTorch's wheel, from 1.5 on, compiles a program that runs our files."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import numpy as np
import pytest

import delegraph

from .models import mlp

pytestmark = [
    pytest.mark.executorch,
    pytest.mark.filterwarnings("ignore"),
]

SOURCE = """
#include <cstdio>
#include <vector>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

int main(int, char** arguments) {
  executorch::extension::Module module(arguments[1]);
  std::vector<float> values(3 * 16);
  for (float& value : values) std::scanf("%f", &value);
  auto results = module.forward(executorch::extension::from_blob(values.data(), {3, 16}));
  if (!results.ok()) return static_cast<int>(results.error());
  const auto& result = results->at(0).toTensor();
  for (int i = 0; i < result.numel(); ++i) std::printf("%.9g\\n", result.const_data_ptr<float>()[i]);
}
"""
LIBRARIES = ("executorch", "executorch_kernels_optimized", "executorch_backend_xnnpack", "executorch_threadpool")


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled program, which takes numbers from its input and prints those of the result."""
    spec = find_spec("executorch")
    folders = [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    sdk = next((folder for folder in folders if (folder / "lib" / "libexecutorch.so").is_file()), None)
    if sdk is None:
        pytest.skip("this wheel has no C++ SDK: it came with ExecuTorch 1.5")
    compiler = which("g++")
    if compiler is None:
        pytest.skip("there is no g++")
    folder = tmp_path_factory.mktemp("sdk")
    (folder / "run.cpp").write_text(SOURCE, "utf-8")
    # as lib/cmake/executorch/executorch-config.cmake says; backends and kernels register themselves, nothing names them
    include = [f"-I{sdk}/include", f"-I{sdk}/include/executorch/runtime/core/portable_type/c10"]
    libraries = ["-Wl,--no-as-needed", *(f"-l{name}" for name in LIBRARIES), f"-L{sdk}/lib", f"-Wl,-rpath,{sdk}/lib"]
    words = ["-std=c++17", "-w", "-DC10_USING_CUSTOM_GENERATED_MACROS", *include, "run.cpp", *libraries, "-o", "run"]
    subprocess.run([compiler, *words], cwd=folder, check=True, timeout=300)
    return folder / "run"


@pytest.mark.parametrize("backends", [[], ["executorch:xnnpack"]], ids=["kernels", "xnnpack"])
def test_a_compiled_program_runs_our_files(backends: list[str], runner: Path, tmp_path: Path) -> None:
    model, args = mlp()
    delegraph.lower(model, args, backends=backends).save(tmp_path / "model.pte")
    numbers = " ".join(map(str, args[0].flatten().tolist()))
    done = subprocess.run(
        [runner, tmp_path / "model.pte"], input=numbers, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    result = np.array(done.stdout.split(), np.float32).reshape(3, 4)
    np.testing.assert_allclose(result, model(*args).detach(), rtol=1e-4, atol=1e-5)
