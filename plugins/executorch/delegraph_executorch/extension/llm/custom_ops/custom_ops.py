"""ExecuTorch's `executorch.extension.llm.custom_ops.custom_ops`, which defines `llama::*` in torch: the wheel's own.

Kernels for these operators are here (`delegraph-portable`, and in delegates of `delegraph-cpu`), their definitions are
not: without the wheel, an ImportError with advice.
"""

import sys
from importlib import import_module

try:
    sys.modules[__name__] = import_module("executorch.extension.llm.custom_ops.custom_ops")  # names and all
except ImportError as error:
    raise ImportError(
        "ExecuTorch's wheel defines llama::custom_sdpa, llama::update_cache and the like in torch, and it cannot be"
        f" imported here ({error}): install executorch where models are lowered; what is lowered runs without it."
        " Or write the cache with index_put_ or slice assignment on a buffer and call"
        " torch.nn.functional.scaled_dot_product_attention: it is lowered in place and backends take it whole"
    ) from error
