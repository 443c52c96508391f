"""`quantized_decomposed::*`, with ExecuTorch's arithmetic.

tensors.py      quantize and dequantize, by tensor, channel, token and group; `add`
parameters.py   `choose_qparams`
weights.py      embeddings and products with weights of 8, 4 or 2 bits
"""
