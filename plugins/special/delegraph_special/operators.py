"""Modules -> their operators. `pytest tests/kernels/test_module_tables.py --renew` writes it."""

from __future__ import annotations

from typing import Final

__all__ = ["OPERATORS"]

_TABLE: Final = {
    "delegraph_special.cholesky": (
        "aten::_cholesky_solve_helper.out aten::cholesky.out aten::cholesky_inverse.out aten::cholesky_solve.out "
        "aten::linalg_cholesky_ex.L"
    ),
    "delegraph_special.eigen": (
        "aten::_linalg_eigh.eigenvalues aten::_linalg_svd.U aten::linalg_eig.out aten::linalg_pinv.atol_rtol_tensor_out"
    ),
    "delegraph_special.functions": (
        "aten::digamma.out aten::erfc.out aten::erfinv.out aten::i0.out aten::igamma.out aten::igammac.out "
        "aten::lgamma.out aten::polygamma.out aten::special_airy_ai.out aten::special_bessel_j0.out "
        "aten::special_bessel_j1.out aten::special_bessel_y0.out aten::special_bessel_y1.out aten::special_erfcx.out "
        "aten::special_i0e.out aten::special_i1.out aten::special_i1e.out aten::special_modified_bessel_i0.out "
        "aten::special_modified_bessel_i1.out aten::special_modified_bessel_k0.out "
        "aten::special_modified_bessel_k1.out aten::special_ndtri.out aten::special_scaled_modified_bessel_k0.out "
        "aten::special_scaled_modified_bessel_k1.out aten::special_spherical_bessel_j0.out "
        "aten::special_zeta.other_scalar_out aten::special_zeta.out aten::special_zeta.self_scalar_out"
    ),
    "delegraph_special.ldl": "aten::linalg_ldl_factor_ex.out aten::linalg_ldl_solve.out",
    "delegraph_special.lu": (
        "aten::_linalg_det.result aten::_linalg_slogdet.sign aten::_linalg_solve_ex.result aten::linalg_inv_ex.inverse "
        "aten::linalg_lu.out aten::linalg_lu_factor_ex.out aten::linalg_lu_solve.out aten::lu_unpack.out"
    ),
    "delegraph_special.matrix_exponential": "aten::linalg_matrix_exp.out",
    "delegraph_special.polynomials": (
        "aten::special_chebyshev_polynomial_t.n_scalar_out aten::special_chebyshev_polynomial_t.out "
        "aten::special_chebyshev_polynomial_t.x_scalar_out aten::special_chebyshev_polynomial_u.n_scalar_out "
        "aten::special_chebyshev_polynomial_u.out aten::special_chebyshev_polynomial_u.x_scalar_out "
        "aten::special_chebyshev_polynomial_v.n_scalar_out aten::special_chebyshev_polynomial_v.out "
        "aten::special_chebyshev_polynomial_v.x_scalar_out aten::special_chebyshev_polynomial_w.n_scalar_out "
        "aten::special_chebyshev_polynomial_w.out aten::special_chebyshev_polynomial_w.x_scalar_out "
        "aten::special_hermite_polynomial_h.n_scalar_out aten::special_hermite_polynomial_h.out "
        "aten::special_hermite_polynomial_h.x_scalar_out aten::special_hermite_polynomial_he.n_scalar_out "
        "aten::special_hermite_polynomial_he.out aten::special_hermite_polynomial_he.x_scalar_out "
        "aten::special_laguerre_polynomial_l.n_scalar_out aten::special_laguerre_polynomial_l.out "
        "aten::special_laguerre_polynomial_l.x_scalar_out aten::special_legendre_polynomial_p.n_scalar_out "
        "aten::special_legendre_polynomial_p.out aten::special_legendre_polynomial_p.x_scalar_out "
        "aten::special_shifted_chebyshev_polynomial_t.n_scalar_out aten::special_shifted_chebyshev_polynomial_t.out "
        "aten::special_shifted_chebyshev_polynomial_t.x_scalar_out "
        "aten::special_shifted_chebyshev_polynomial_u.n_scalar_out aten::special_shifted_chebyshev_polynomial_u.out "
        "aten::special_shifted_chebyshev_polynomial_u.x_scalar_out "
        "aten::special_shifted_chebyshev_polynomial_v.n_scalar_out aten::special_shifted_chebyshev_polynomial_v.out "
        "aten::special_shifted_chebyshev_polynomial_v.x_scalar_out "
        "aten::special_shifted_chebyshev_polynomial_w.n_scalar_out aten::special_shifted_chebyshev_polynomial_w.out "
        "aten::special_shifted_chebyshev_polynomial_w.x_scalar_out"
    ),
    "delegraph_special.qr": "aten::geqrf.a aten::linalg_householder_product.out aten::linalg_qr.out aten::ormqr.out",
    "delegraph_special.triangular": "aten::linalg_solve_triangular.out aten::triangular_solve.X",
}

OPERATORS: Final = {module: operators.split() for module, operators in _TABLE.items()}
