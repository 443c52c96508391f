"""ExecuTorch's `executorch.extension.llm.custom_ops.custom_ops`, which has no equal: an ImportError with advice."""

raise ImportError(
    "ExecuTorch's operators llama::sdpa_with_kv_cache, llama::custom_sdpa, llama::update_cache and"
    " llama::fast_hadamard_transform are not here. Write the cache with index_put_ or slice assignment on a buffer and"
    " call torch.nn.functional.scaled_dot_product_attention: it is lowered in place and backends take it whole;"
    " docs/writing-a-kernel.md says how to add an operator of your own"
)
