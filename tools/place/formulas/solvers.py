"""Fourier transforms and factorisations of matrices: the FLOPs of the textbook, each matrix read and written once."""

from math import log2, prod

from formulas.base import Call, CallWork, count_bytes, formula

# FLOPs of an n x n matrix over n cubed.
CUBED = {"linalg_lu_factor_ex": 2 / 3, "linalg_cholesky_ex": 1 / 3, "linalg_inv_ex": 2, "_linalg_solve_ex": 2 / 3}
CUBED |= {"linalg_qr": 4 / 3, "_linalg_eigh": 4 / 3, "_linalg_svd": 8 / 3}
CUBED |= {"linalg_lu_solve": 2, "linalg_solve_triangular": 1}


@formula(*CUBED)
def factorisation_work(call: Call) -> CallWork:
    """Return the work of a factorisation or solution: by the rows of the matrices and the columns of what is solved."""
    matrix = call.inputs[0]
    *batch, rows, columns = matrix.dims
    if "lu_solve" in call.name:
        columns = call.inputs[2].dims[-1]
    elif "triangular" in call.name:
        columns = call.inputs[1].dims[-1]
    shared = min(rows, columns) if call.name in ("linalg_qr", "_linalg_svd", "linalg_lu_factor_ex") else rows
    flops = CUBED[call.name] * prod(batch) * rows * columns * shared
    dtype = matrix.dtype if matrix.dtype in ("fp32", "fp64") else "fp32"
    return CallWork(flops, count_bytes(call.tensors()), matrix.bytes, dtype)


@formula("_fft_r2c", "_fft_c2r", "_fft_c2c")
def fourier_work(call: Call) -> CallWork:
    """Return the work of a transform over the axes of its second argument: 5 n log2 n, half of it for real numbers."""
    signal, axes = call.inputs[0], call.sizes(1)
    length = prod(signal.dims[axis] for axis in axes)
    flops = 5 * signal.count * log2(max(2, length)) * (0.5 if call.name == "_fft_r2c" else 1)
    is_two_sided = call.name == "_fft_r2c" and call.argument(3) == "False"
    return CallWork(flops, signal.bytes, signal.bytes * (2 if is_two_sided else 1))
