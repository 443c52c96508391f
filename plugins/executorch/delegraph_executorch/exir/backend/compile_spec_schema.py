"""ExecuTorch's `executorch.exir.backend.compile_spec_schema`."""

from delegraph.aot import CompileSpec

__all__ = ["CompileSpec"]
