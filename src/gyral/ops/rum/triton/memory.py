"""The associative memory of λ = 1, R_t = R_{t−1} Rotation(ε̃_t, τ_t), and its gradient, a tile of rows at a time."""

import triton
import triton.language as tl

from gyral.ops.triton.rows import add_3, add_4, add_5, totals_2


@triton.jit
def add_rows(x, groups: tl.constexpr):
    """Return the sums (groups, N) of every `groups`th row of x (K, N): threads need not exchange any for them."""
    return tl.sum(tl.reshape(x, [x.shape[0] // groups, groups, x.shape[1]]), axis=0)


@triton.jit
def begin_memory(tile, at, inside, row, columns, started, slot, saving, checkpoint, config: tl.constexpr):
    """Return rows of R_{t−1}, or of the identity after a reset; store them before a reset, and in a checkpoint."""
    if config.has_starts:  # noqa: SIM102 (a condition of the compiler, and one of the kernel)
        if started:
            tl.store(slot + at, tile, mask=inside)
            tile = tl.where((row == columns[None, :]) & inside, 1.0, 0.0)
    if saving:
        tl.store(checkpoint + at, tile, mask=inside)
    return tile


@triton.jit
def rotate_memory(tile, h, rotation):
    """Return rows of R_t, and R_t h_{t−1} (K, 1), given those of R_{t−1}."""
    u, w, c11, c12, c21 = rotation.u[None, :], rotation.w[None, :], rotation.c11, rotation.c12, rotation.c21
    # R_t h = R_{t−1} (Rotation h), from the same sums as R_t from R_{t−1}
    tile_h, tile_u, tile_w = tl.reduce((tile * h[None, :], tile * u, tile * w), 1, add_3, keep_dims=True)
    read = tile_h + rotation.along_u * tile_u + rotation.along_w * tile_w
    return tile + (c11 * tile_u + c21 * tile_w) * u + (c12 * tile_u + c11 * tile_w) * w, read


@triton.jit
def rotate_memory_backward(tile, d_tile, dy, h, rotation, sums, groups: tl.constexpr):
    """Return rows of R_{t−1} and ∂L/∂R_{t−1}, given those of R_t, ∂L/∂R_t without the term of y_t = R_t h, and ∂L/∂y_t.

    Return also their terms in the sums of `memory_gradients`.
    """
    u, w, c11, c12, c21 = rotation.u[None, :], rotation.w[None, :], rotation.c11, rotation.c12, rotation.c21
    to_h, m_u, m_w, mt_u, mt_w = sums
    to_h += add_rows(tile * dy, groups)
    # R_{t−1} = R_t Rotationᵀ, and its products with u and w, whose inner product is that of obtuse angles, 0, or c
    tile_u, tile_w, d_u, d_w = tl.reduce((tile * u, tile * w, d_tile * u, d_tile * w), 1, add_4, keep_dims=True)
    along_u, along_w = c11 * tile_u + c12 * tile_w, c21 * tile_u + c11 * tile_w
    tile += along_u * u + along_w * w
    u_w = tl.where(rotation.is_obtuse, 0.0, rotation.overlap)
    tile_u, tile_w = tile_u + along_u + u_w * along_w, tile_w + u_w * along_u + along_w
    d_tile += dy * h[None, :]
    d_u, d_w = d_u + dy * rotation.h_u, d_w + dy * rotation.h_w
    m_u += add_rows(tile * d_u, groups)
    m_w += add_rows(tile * d_w, groups)
    mt_u += add_rows(d_tile * tile_u, groups)
    mt_w += add_rows(d_tile * tile_w, groups)
    # ∂L/∂R_{t−1} = ∂L/∂R_t Rotationᵀ
    d_tile += (c11 * d_u + c12 * d_w) * u + (c21 * d_u + c11 * d_w) * w
    return tile, d_tile, (to_h, m_u, m_w, mt_u, mt_w)


@triton.jit
def memory_gradients(sums, rotation):
    """Return the gradients of u, w and h through R_t h, and then scalars of `rotation_backward`, given terms of sums.

    Args:
        to_h: Of R_tᵀ ∂L/∂y_t.
        m_u, m_w, mt_u, mt_w: Of M u, M w, Mᵀ u and Mᵀ w, M = R_{t−1}ᵀ ∂L/∂R_t.
        rotation: The rotation.
    """
    u, w, c11, c12, c21 = rotation.u, rotation.w, rotation.c11, rotation.c12, rotation.c21
    to_h, m_u, m_w, mt_u, mt_w = tl.reduce(sums, 0, add_5)
    # with E = [u w], ∂E = M E Cᵀ + Mᵀ E C and ∂C = Eᵀ M E
    of_c = tl.reduce((u * m_u, u * m_w, w * m_u, w * m_w), 0, add_4)
    du = c11 * (m_u + mt_u) + c12 * m_w + c21 * mt_w
    dw = c11 * (m_w + mt_w) + c21 * m_u + c12 * mt_u
    of_vectors = tl.reduce((u * du, w * du, u * dw, w * dw), 0, add_4)
    return du, dw, to_h, of_vectors, of_c


@triton.jit
def _add_6(a, b, c, d, e, f, other_a, other_b, other_c, other_d, other_e, other_f):
    return a + other_a, b + other_b, c + other_c, d + other_d, e + other_e, f + other_f


@triton.jit
def turn(x, u, w, c11, c12, c21):
    """Return (I + [u w] C [u w]ᵀ) x, C₂₂ = C₁₁; x is a vector, or rows with scalars (K, 1) and u and w (1, N)."""
    x_u, x_w = totals_2(x * u, x * w)
    return x + (c11 * x_u + c12 * x_w) * u + (c21 * x_u + c11 * x_w) * w


@triton.jit
def turn_3(x, y, z, u, w, c11, c12, c21):
    """Return `turn` of three vectors."""
    x_u, x_w, y_u, y_w, z_u, z_w = tl.reduce((x * u, x * w, y * u, y * w, z * u, z * w), 0, _add_6)
    x += (c11 * x_u + c12 * x_w) * u + (c21 * x_u + c11 * x_w) * w
    y += (c11 * y_u + c12 * y_w) * u + (c21 * y_u + c11 * y_w) * w
    z += (c11 * z_u + c12 * z_w) * u + (c21 * z_u + c11 * z_w) * w
    return x, y, z
