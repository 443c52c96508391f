"""Linear algebra and special functions against torch on samples of torch's operator database."""

from __future__ import annotations

import pytest
import torch
from tests.kernels.oracle import Oracle
from tests.kernels.samples import check_samples

OPINFOS = {
    "cholesky": "cholesky.out",
    "cholesky_inverse": "cholesky_inverse.out",
    "cholesky_solve": "cholesky_solve.out",
    "digamma": "digamma.out",
    "erfc": "erfc.out",
    "erfinv": "erfinv.out",
    "geqrf": "geqrf.a",
    "i0": "i0.out",
    "igamma": "igamma.out",
    "igammac": "igammac.out",
    "lgamma": "lgamma.out",
    "linalg.cholesky_ex": "linalg_cholesky_ex.L",
    "linalg.det": "_linalg_det.result",
    "linalg.eig": "linalg_eig.out",
    "linalg.eigh": "_linalg_eigh.eigenvalues",
    "linalg.householder_product": "linalg_householder_product.out",
    "linalg.inv_ex": "linalg_inv_ex.inverse",
    "linalg.ldl_factor_ex": "linalg_ldl_factor_ex.out",
    "linalg.ldl_solve": "linalg_ldl_solve.out",
    "linalg.lu": "linalg_lu.out",
    "linalg.lu_factor_ex": "linalg_lu_factor_ex.out",
    "linalg.lu_solve": "linalg_lu_solve.out",
    "linalg.pinv": "linalg_pinv.atol_rtol_tensor_out",
    "linalg.qr": "linalg_qr.out",
    "linalg.slogdet": "_linalg_slogdet.sign",
    "linalg.solve": "_linalg_solve_ex.result",
    "linalg.solve_triangular": "linalg_solve_triangular.out",
    "linalg.svd": "_linalg_svd.U",
    "lu_unpack": "lu_unpack.out",
    "matrix_exp": "linalg_matrix_exp.out",
    "ormqr": "ormqr.out",
    "polygamma": "polygamma.out",
    "special.airy_ai": "special_airy_ai.out",
    "special.bessel_j0": "special_bessel_j0.out",
    "special.hermite_polynomial_h": "special_hermite_polynomial_h.out",
    "special.i1e": "special_i1e.out",
    "special.legendre_polynomial_p": "special_legendre_polynomial_p.out",
    "special.zeta": "special_zeta.out",
    "triangular_solve": "triangular_solve.X",
}
"""Database entry -> the kernels that it must reach; `aten::` is left out."""

DTYPES = (torch.float32, torch.complex64, torch.complex128, torch.float16, torch.bfloat16, torch.int64)


@pytest.mark.database
@pytest.mark.parametrize("name", OPINFOS)
def test_database_entry(oracle: Oracle, name: str) -> None:
    check_samples(oracle, name, OPINFOS[name], DTYPES)
