"""ExecuTorch's `executorch.extension.pybindings.aten_lib`, which its wheels do not have either: an ImportError."""

raise ImportError(
    "there is no aten_lib: ATen mode is a kernel library here, not another build of the runtime."
    " pip install delegraph-aten, then delegraph.load(path, kernels='aten') or"
    " delegraph.runtime.Runtime(kernels='aten').load_program(path)"
)
