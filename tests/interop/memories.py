"""Case -> the memories that its file is to have; apart from the cases, which ExecuTorch's environment reads too."""

from __future__ import annotations

from tests.interop.modules import Case

from delegraph.interfaces import Memory, MemoryHierarchy

__all__ = ["memory_of"]


def memory_of(case: Case) -> MemoryHierarchy | None:
    """A large memory and a small one that is faster, if the case has one."""
    if case.sram is None:
        return None
    return MemoryHierarchy((Memory("dram"), Memory("sram", case.sram, speed=8)))
