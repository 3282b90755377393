// Shared by the recurrences on the CPU: functions of one number, the product with packed weights, functions of vectors.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

using Index = std::int64_t;

namespace {

constexpr Index BLOCK = 8;  // rows that go through a step together

// ---------------------------------------------------------------- functions of one number

inline double exponential(double x) { return std::exp(x); }

// Cephes' expf in a form that compilers vectorize: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2].
inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    const float shift = 12582912.0f;  // adding 1.5 * 2^23 rounds to an integer, which ends up in the low bits
    const float shifted = x * 1.44269504f + shift;
    const float n = shifted - shift;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    std::int32_t bits, exponent;
    std::memcpy(&bits, &p, sizeof bits);
    std::memcpy(&exponent, &shifted, sizeof exponent);
    bits += static_cast<std::int32_t>(static_cast<std::uint32_t>(exponent) << 23);
    std::memcpy(&p, &bits, sizeof p);
    return x == x ? p : x;  // a NaN stays a NaN
}

template <class Real>
inline Real sigmoid(Real x) {
    return 1 / (1 + exponential(-x));
}

inline double hyperbolic_tangent(double x) { return std::tanh(x); }

// u / (u + 2) for u = e^2|x| - 1, of which no digits cancel: for e^2|x| = 2^n e^r, the polynomial of `exponential` is e^r - 1.
inline float hyperbolic_tangent(float x) {
    float size = std::fabs(x);
    size = size > 10.0f ? 10.0f : size;  // a NaN stays a NaN
    const float shift = 12582912.0f;
    const float shifted = size * 2.88539008f + shift;
    const float n = shifted - shift;
    const float r = (2.0f * size - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r;
    std::int32_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    bits = static_cast<std::int32_t>((static_cast<std::uint32_t>(bits) << 23) + 0x3f800000u);
    float power;
    std::memcpy(&power, &bits, sizeof power);
    const float u = power * p + (power - 1.0f);
    return std::copysign(u / (u + 2.0f), x);
}

// An activation and its slope as a function of its value.
struct Relu {
    template <class Real> static Real value(Real x) { return x < 0 ? Real(0) : x; }  // a NaN stays a NaN
    template <class Real> static Real slope(Real y) { return y > 0 ? Real(1) : Real(0); }
};
struct Tanh {
    template <class Real> static Real value(Real x) { return hyperbolic_tangent(x); }
    template <class Real> static Real slope(Real y) { return 1 - y * y; }
};
struct Sigmoid {
    template <class Real> static Real value(Real x) { return sigmoid(x); }
    template <class Real> static Real slope(Real y) { return y * (1 - y); }
};
struct Softsign {
    template <class Real> static Real value(Real x) { return x / (1 + std::fabs(x)); }
    template <class Real> static Real slope(Real y) { return (1 - std::fabs(y)) * (1 - std::fabs(y)); }
};

// ---------------------------------------------------------------- the product with packed weights

#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64;
#elif defined(__AVX__)
constexpr int VECTOR_BYTES = 32;
#else
constexpr int VECTOR_BYTES = 16;
#endif
// A tile of ROWS by VECTORS accumulators fills the registers, together with VECTORS of weights and one broadcast value.
constexpr int ROWS = VECTOR_BYTES == 32 ? 4 : 8;
constexpr int VECTORS = 3;
constexpr Index DEPTH = 256;  // terms per partial sum: long sums lose digits
static_assert(BLOCK % ROWS == 0);

template <class Real> constexpr int LANES = VECTOR_BYTES / sizeof(Real);

template <class Real> constexpr Index padded(Index columns) {
    return (columns + LANES<Real> - 1) / LANES<Real> * LANES<Real>;
}

// Packs a matrix (depth, columns), with element (k, j) at source[k * row + j * column], into panels of up to VECTORS
// vectors of columns, each (depth, its width), with zeros beyond the last column.
template <class Real>
void pack(const Real* source, Index row, Index column, Index depth, Index columns, Real* packed) {
    for (Index first = 0; first < padded<Real>(columns); first += VECTORS * LANES<Real>) {
        const Index width = std::min<Index>(VECTORS * LANES<Real>, padded<Real>(columns) - first);
        for (Index k = 0; k < depth; ++k)
            for (Index j = first; j < first + width; ++j) *packed++ = j < columns ? source[k * row + j * column] : 0;
    }
}

// Keeps a vector in a register. GCC loads one again for each use, and a product then waits for its loads: it takes 1.7
// times as long.
template <class Vector> [[gnu::always_inline]] inline void keep_in_register(Vector& value) {
#ifdef __AVX__
    asm("" : "+v"(value));
#endif
}

// `panel_row` is the distance between rows of the panel. `ahead` points to weights that are used soon: one cache line of
// them is prefetched for each k, because large weights do not fit into the second-level cache. `transposed`: a is stored
// as (depth, rows).
template <class Real, int rows, int vectors, bool transposed, bool prefetches = true>
void tile(const Real* a, Index a_row, const Real* panel, Index panel_row, Index depth, Real* c, Index c_row, bool add,
          const Real* ahead) {
    typedef Real Vector __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(Real)), may_alias));
    Vector sum[rows][vectors];
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 3
        for (int j = 0; j < vectors; ++j) sum[i][j] = Vector{};
    for (Index k = 0; k < depth; ++k, panel += panel_row) {
        if constexpr (prefetches) __builtin_prefetch(ahead + k * LANES<Real>, 0, 2);
        Vector weight[vectors];
#pragma GCC unroll 3
        for (int j = 0; j < vectors; ++j) {
            weight[j] = *reinterpret_cast<const Vector*>(panel + j * LANES<Real>);
            keep_in_register(weight[j]);
        }
#pragma GCC unroll 8
        for (int i = 0; i < rows; ++i) {
            // not a vector, so that the broadcast is part of the load
            const Real value = transposed ? a[k * a_row + i] : a[i * a_row + k];
#pragma GCC unroll 3
            for (int j = 0; j < vectors; ++j) sum[i][j] += value * weight[j];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 3
        for (int j = 0; j < vectors; ++j) {
            Vector* out = reinterpret_cast<Vector*>(c + i * c_row + j * LANES<Real>);
            *out = add ? *out + sum[i][j] : sum[i][j];
        }
}

// Calls run(rows) with `wanted` rows, at most ROWS, as a constant.
template <int rows = ROWS, class Run> inline void with_rows(Index wanted, const Run& run) {
    if constexpr (rows > 1) {
        if (wanted < rows) return with_rows<rows - 1>(wanted, run);
    }
    run(std::integral_constant<int, rows>());
}

// c (rows, padded columns) = or += a (rows, depth) times packed weights (depth, columns). The order of summation
// does not depend on `rows`, so that results do not depend on the number of threads. `transposed`: a is the result of
// `pack_left_row`, and the depth is at most DEPTH.
template <class Real, bool transposed = false>
void multiply(Index rows, const Real* a, Index a_row, const Real* packed, Index depth, Index columns, Real* c,
              Index c_row, bool add) {
    for (Index first = 0; first < padded<Real>(columns); first += VECTORS * LANES<Real>) {
        const Index vectors = std::min<Index>(VECTORS, (padded<Real>(columns) - first) / LANES<Real>);
        for (Index from = 0; from < depth; from += DEPTH) {
            const Index some = std::min(DEPTH, depth - from);
            const bool accumulate = add || from > 0;
            const Real* ahead = packed + some * vectors * LANES<Real>;
            for (Index row = 0; row < rows; row += ROWS, ahead += some * LANES<Real>) {
                const Index wanted = std::min<Index>(ROWS, rows - row);
                const Real* left = transposed ? a + row * depth : a + row * a_row + from;
                Real* out = c + row * c_row + first;
                const auto run = [&](auto count) {
                    with_rows(wanted, [&](auto exact) {
                        tile<Real, exact, count, transposed>(left, a_row, packed, count * LANES<Real>, some, out, c_row,
                                                             accumulate, ahead);
                    });
                };
                if (vectors == 1) run(std::integral_constant<int, 1>());
                if (vectors == 2) run(std::integral_constant<int, 2>());
                if (vectors == 3) run(std::integral_constant<int, 3>());
            }
            packed += some * vectors * LANES<Real>;
        }
    }
}

// ---------------------------------------------------------------- vectors

// 1/|x|, given |x|^2; 0 if that is below the smallest normal number or overflows
template <class Real>
inline Real inverse_norm(Real squared) {
    const bool usable = squared > std::numeric_limits<Real>::min() && squared < std::numeric_limits<Real>::infinity();
    return usable ? 1 / std::sqrt(squared) : Real(0);
}

template <class Real> inline bool is_finite(const Real* vector, Index size) {
    return std::all_of(vector, vector + size, [](Real x) { return std::isfinite(x); });
}

// Applies zoneout to the new vector in place: with a mask, or with its mean if there is none.
template <class Real>
inline void zone_out(Real* __restrict fresh, const Real* __restrict old, const Real* __restrict keep, Real keep_mean,
                     Index size) {
    if (keep)
        for (Index i = 0; i < size; ++i) fresh[i] += keep[i] * (old[i] - fresh[i]);
    else if (keep_mean != 0)
        for (Index i = 0; i < size; ++i) fresh[i] += keep_mean * (old[i] - fresh[i]);
}

// Splits the gradient of the result into that of the new vector, in place, and that of the old vector (`direct`).
template <class Real>
inline void zone_out_backward(Real* __restrict gradient, Real* __restrict direct, const Real* __restrict keep,
                              Real keep_mean, Index size) {
    for (Index i = 0; i < size; ++i) {
        direct[i] = gradient[i] * (keep ? keep[i] : keep_mean);
        gradient[i] -= direct[i];
    }
}

}  // namespace
