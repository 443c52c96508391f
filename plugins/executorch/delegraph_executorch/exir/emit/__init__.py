"""Emission (ExecuTorch `exir/emit`)."""

from delegraph_executorch.exir.emit._emit_program import EmitterOutput, emit_program

__all__ = ["EmitterOutput", "emit_program"]
