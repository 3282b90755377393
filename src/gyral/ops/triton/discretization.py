"""The discretization of diagonal state spaces, and its gradient; see `gyral.ops.diagonal.layer.discretize`."""

import triton
import triton.language as tl

from gyral.ops.triton.exponentials import exp_minus_one


@triton.jit
def multiply(a, ai, b, bi):
    return a * b - ai * bi, a * bi + ai * b


@triton.jit
def reciprocal(x, xi):
    squared = x * x + xi * xi
    return x / squared, -xi / squared


@triton.jit
def discretize(rate, frequency, scale, kind: tl.constexpr):
    """Return λ, f, and 1 / Λ of "zoh" or 1 / (1 − ΔΛ/2) of "bilinear", real and imaginary parts, for numbers (K,)."""
    step = tl.exp(scale)
    if kind == "bilinear":
        inverse, inversei = reciprocal(1.0 - 0.5 * step * rate, -0.5 * step * frequency)
        f, fi = step * inverse, step * inversei
        a, ai = multiply(f, fi, rate, frequency)
        a += 1.0  # λ = 1 + ΔΛ / (1 − ΔΛ/2) keeps more digits
    else:
        if kind == "lru":
            growth, angle = -tl.exp(rate), tl.exp(frequency)
        else:
            growth, angle = step * rate, step * frequency
        radius, cosine, half = tl.exp(growth), tl.cos(angle), tl.sin(0.5 * angle)
        a, ai = radius * cosine, radius * tl.sin(angle)
        inverse, inversei = a, ai  # unused
        f, fi = step, 0.0 * step
        if kind == "zoh":  # λ − 1 without the loss of digits where λ is close to 1
            inverse, inversei = reciprocal(rate, frequency)
            f, fi = multiply(exp_minus_one(growth) * cosine - 2.0 * half * half, ai, inverse, inversei)
    return a, ai, f, fi, inverse, inversei


@triton.jit
def vector_gradients(rate, frequency, scale, da, dai, df, dfi, kind: tl.constexpr):
    """Return the gradients of rate, frequency and scale (K,), given those of λ and f.

    With da + i dai as the gradient of λ, that of z is conj(∂λ/∂z) times it.
    """
    a, ai, f, fi, inverse, inversei = discretize(rate, frequency, scale, kind)
    step = tl.exp(scale)
    if kind == "lru":
        d_rate = -tl.exp(rate) * (a * da + ai * dai)
        d_frequency = tl.exp(frequency) * (a * dai - ai * da)
        d_scale = f * df
    elif kind == "zoh":
        more, morei = multiply(inverse, -inversei, df, dfi)  # of λ, through f
        dz, dzi = multiply(a, -ai, da + more, dai + morei)
        less, lessi = multiply(f, -fi, more, morei)
        d_rate, d_frequency = step * dz - less, step * dzi - lessi
        d_scale = step * (rate * dz + frequency * dzi)
    else:
        square, squarei = multiply(inverse, -inversei, inverse, -inversei)
        dz, dzi = multiply(square, squarei, da + 0.5 * step * df, dai + 0.5 * step * dfi)
        d_rate, d_frequency = step * dz, step * dzi
        d_scale = step * (rate * dz + frequency * dzi) + f * df + fi * dfi
    return d_rate, d_frequency, d_scale
