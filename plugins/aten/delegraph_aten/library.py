"""Operator names -> the library `aten`, which has whatever torch has when it is asked. Free of torch until then."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from delegraph.interfaces import Kernel, KernelKey, KernelLibrary


class AtenLibrary(KernelLibrary):
    """Kernels that call torch's operators by the names they have in programs.

    A custom operator is found once whoever defines it with `torch.library` has been imported.
    """

    on_request = True

    def lookup(self, op: str, key: KernelKey) -> Kernel | None:
        """The kernel that calls torch's `op` on tensors of any dtype and dim order, or None."""
        known = super().lookup(op, key)
        if known is not None:
            return known
        from delegraph_aten.calls import bind, run
        from delegraph_aten.operators import find_operator

        operator = find_operator(op)
        if operator is None:
            return None
        kernel = Kernel(op, partial(run, operator), self.name, bind=partial(bind, operator))
        return self._kernels.setdefault((op, None), kernel)

    def operator_names(self) -> frozenset[str]:
        """Every operator that a program can hold and that torch, as it is loaded now, can run."""
        from delegraph_aten.operators import operator_names

        return operator_names()

    def __iter__(self) -> Iterator[Kernel]:
        for op in sorted(self.operator_names()):
            kernel = self.lookup(op, ())
            if kernel is not None:
                yield kernel

    def __repr__(self) -> str:
        return f"AtenLibrary({self.name!r})"


library: Final = AtenLibrary("aten")
