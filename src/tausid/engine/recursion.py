"""Linear state recursions over long records, many signals at once: by the compiled library, or by scipy without it."""

from __future__ import annotations

import numpy as np

from tausid.engine.layout import plain, pointer
from tausid.engine.library import check, library, missing
from tausid.shapes import Float


def filter_states(
    A: Float[np.ndarray, "n n"], drive: Float[np.ndarray, "n K N"], x0: Float[np.ndarray, "n K"]
) -> Float[np.ndarray, "n K N"]:
    """Solve `x[k+1] = A x[k] + drive[k]` for K signals, time last."""
    if missing() is not None or not len(A):
        return _by_filters(A, drive, x0)
    n, K, N = drive.shape
    if A.shape != (n, n) or x0.shape != (n, K):
        raise ValueError(f"`A` must have shape {(n, n)} and `x0` {(n, K)}; got {A.shape} and {x0.shape}")
    x, arrays = np.empty(drive.shape), [plain(array) for array in (A, drive, x0)]
    check(library().tausid_recursion(n, K, N, *map(pointer, arrays), pointer(x)))
    return x


def _by_filters(
    A: Float[np.ndarray, "n n"], drive: Float[np.ndarray, "n K N"], x0: Float[np.ndarray, "n K"]
) -> Float[np.ndarray, "n K N"]:
    """The same by scipy.

    The Schur form is triangular, so the states follow one after the other from first-order filters, the last
    one first. Its basis is unitary: repeated and nearly repeated poles cost no accuracy, unlike a modal form.
    """
    from scipy.linalg import schur
    from scipy.signal import lfilter  # late: it takes longer to import than all else

    real = not np.any(np.iscomplex(np.linalg.eigvals(A)))
    triangular, basis = schur(A, output="real" if real else "complex")
    # einsum, not matmul: as fast on such flat arrays, and BLAS threads would fight over a busy machine.
    rotated = np.einsum("ji,jkt->ikt", basis.conj(), drive)
    z0 = basis.conj().T @ x0
    z = np.zeros_like(rotated)
    for i in reversed(range(len(A))):
        total = rotated[i] + np.einsum("j,jkt->kt", triangular[i, i + 1 :], z[i + 1 :])
        z[i], _ = lfilter([0.0, 1.0], [1.0, -triangular[i, i]], total, zi=z0[i][:, None])
    return np.ascontiguousarray(np.einsum("ij,jkt->ikt", basis, z).real)


def simulate_states(
    A: Float[np.ndarray, "n n"],
    B: Float[np.ndarray, "n nu"],
    u: Float[np.ndarray, "N nu"],
    x0: Float[np.ndarray, "n"],
) -> Float[np.ndarray, "N n"]:
    """Solve `x[k+1] = A x[k] + B u[k]`, time first."""
    return filter_states(A, (B @ u.T)[:, None, :], x0[:, None])[:, 0, :].T
