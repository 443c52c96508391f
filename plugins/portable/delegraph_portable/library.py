"""Kernels -> the library `portable`, which the modules of this package fill when they are imported."""

from __future__ import annotations

from functools import partial
from typing import Final

from delegraph.interfaces import KernelLibrary
from delegraph.runtime.numpy_kernels.prepared import content_dependent_kernel, prepared_kernel

library: Final = KernelLibrary("portable")

kernel: Final = partial(prepared_kernel, library)
data_dependent: Final = partial(content_dependent_kernel, library)
