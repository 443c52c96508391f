"""Kernels for linear algebra and special functions, on SciPy: `delegraph_special:library`.

functions.py            special functions: gamma, Bessel, Airy, error functions and their inverses, zeta
polynomials.py          orthogonal polynomials
triangular.py           systems with triangular matrices
cholesky.py             A = L Lᴴ, and systems with it
lu.py                   A = P L U: systems, inverses, determinants
ldl.py                  A = L D Lᵀ, and systems with it
qr.py                   A = Q R, and products with Q
eigen.py                eigenvalues, singular values, the pseudo-inverse
matrix_exponential.py   exp(A)
matrices.py             what those of linear algebra share
library.py              the library, and how SciPy gets into it
operators.py            which module has which kernels: the library imports it when one is looked up
"""

from .library import library

__all__ = ["library"]
