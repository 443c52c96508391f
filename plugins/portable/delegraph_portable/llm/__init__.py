"""`llama::*`, the operators that ExecuTorch's language models call (`extension/llm/custom_ops`).

attention.py   attention over a cache, in floats and over quantized values
cache.py       writing into a cache
hadamard.py    the Hadamard transform of rotated weights
"""
