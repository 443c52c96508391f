"""Elementwise kernels: each element of the result is a function of one element of each operand.

unary.py            functions of one tensor: `exp`, `sqrt`, `round`, `sigmoid`, `erf`, `isnan`, `frexp` …
arithmetic.py       two operands: `add`, `div`, `remainder`, `ldexp`, `clamp`, `maximum`, `gcd`, `polar` …
powers.py           `pow`
comparison.py       `eq` … `lt`, logical and bitwise operations, shifts, `where`, `masked_fill`, `tril`
activations.py      `relu`, `gelu`, `elu`, `glu`, `_softmax`, `_log_softmax` …
error_function.py   erf, which NumPy lacks
"""

from . import activations, arithmetic, comparison, powers, unary  # noqa: F401  importing them registers their kernels
