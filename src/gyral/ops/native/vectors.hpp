// Vectors of one register, functions of vectors of any size, and products of a matrix and a vector whose rows are padded
// to whole registers.

#pragma once

#ifdef __AVX__
#include <immintrin.h>
#endif

#include <utility>

#include "native/common.hpp"

namespace {

template <class Real> using Vector __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(Real)), may_alias)) = Real;

template <class Real> inline Vector<Real> load(const Real* from) {
    return *reinterpret_cast<const Vector<Real>*>(from);
}
template <class Real> inline void store(Real* to, Vector<Real> value) { *reinterpret_cast<Vector<Real>*>(to) = value; }

// The first `count` elements of a register, at most LANES, with zeros beyond; nothing beyond them in memory is touched.
template <class Real> inline Vector<Real> load_first(const Real* from, Index count) {
#if defined(__AVX512F__)
    const unsigned mask = (1u << count) - 1;
    if constexpr (sizeof(Real) == sizeof(float))
        return Vector<Real>(_mm512_maskz_loadu_ps(mask, from));
    else
        return Vector<Real>(_mm512_maskz_loadu_pd(mask, from));
#elif defined(__AVX__)
    alignas(32) static const std::int32_t masks[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    if (count == LANES<Real>) return load(from);
    const std::int32_t* own = masks + 8 - count * Index(sizeof(Real) / sizeof(float));
    const __m256i mask = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(own));
    if constexpr (sizeof(Real) == sizeof(float))
        return Vector<Real>(_mm256_maskload_ps(from, mask));
    else
        return Vector<Real>(_mm256_maskload_pd(from, mask));
#else
    if (count == LANES<Real>) return load(from);  // compilers copy a known number of bytes in pieces
    Vector<Real> value = {};
    std::memcpy(&value, from, count * sizeof(Real));
    return value;
#endif
}
template <class Real> inline void store_first(Real* to, Index count, Vector<Real> value) {
#if defined(__AVX512F__)
    const unsigned mask = (1u << count) - 1;
    if constexpr (sizeof(Real) == sizeof(float))
        _mm512_mask_storeu_ps(to, mask, __m512(value));
    else
        _mm512_mask_storeu_pd(to, mask, __m512d(value));
#elif defined(__AVX__)
    // stores with masks take many instructions on some processors
    if (count == LANES<Real>) return store<Real>(to, value);
    const Index words = count * Index(sizeof(Real) / sizeof(float));  // of 4 bytes
    auto* out = reinterpret_cast<float*>(to);
    const __m256 all = __m256(value);
    __m128 rest = _mm256_castps256_ps128(all);
    if (words & 4) _mm_storeu_ps(out, rest), rest = _mm256_extractf128_ps(all, 1), out += 4;
    if (words & 2) _mm_storel_pi(reinterpret_cast<__m64*>(out), rest), rest = _mm_movehl_ps(rest, rest), out += 2;
    if (words & 1) _mm_store_ss(out, rest);
#else
    if (count == LANES<Real>) return store<Real>(to, value);
    std::memcpy(to, &value, count * sizeof(Real));
#endif
}

// Writes row k of a matrix (depth, columns) in the form of `pack`.
template <class Real>
void pack_row(const Real* source, Index k, Index depth, Index columns, Real* packed) {
    for (Index first = 0; first < padded<Real>(columns); first += VECTORS * LANES<Real>) {
        const Index width = std::min<Index>(VECTORS * LANES<Real>, padded<Real>(columns) - first);
        for (Index j = first; j < first + width; j += LANES<Real>)
            store<Real>(packed + first * depth + k * width + j - first,
                        load_first(source + j, std::min<Index>(LANES<Real>, columns - j)));
    }
}

// Writes row k of a matrix (depth, columns) as a transposed left factor: panels of ROWS columns, each (depth, ROWS).
template <class Real> void pack_left_row(const Real* source, Index k, Index depth, Index columns, Real* packed) {
    Index first = 0;
    for (; first + ROWS <= columns; first += ROWS)
        std::memcpy(packed + first * depth + k * ROWS, source + first, ROWS * sizeof(Real));
    std::copy(source + first, source + columns, packed + first * depth + k * ROWS);
}

// The sum of the lower and the upper half of a register, of `lanes` elements each.
template <class Real, class Value, std::size_t... lanes>
inline auto add_halves(const Value& value, std::index_sequence<lanes...>) {
#if __has_builtin(__builtin_shufflevector)
    return __builtin_shufflevector(value, value, lanes...) +
           __builtin_shufflevector(value, value, (lanes + sizeof...(lanes))...);
#else  // GCC before version 12; slower, because it goes through memory
    typedef Real Half __attribute__((vector_size(sizeof(Value) / 2)));
    Half low, high;
    std::memcpy(&low, &value, sizeof low);
    std::memcpy(&high, reinterpret_cast<const char*>(&value) + sizeof low, sizeof high);
    return low + high;
#endif
}

template <class Real, class Value> inline Real sum_of(const Value& value) {
    constexpr std::size_t lanes = sizeof(Value) / sizeof(Real);
    if constexpr (lanes == 2)
        return value[0] + value[1];
    else
        return sum_of<Real>(add_halves<Real>(value, std::make_index_sequence<lanes / 2>()));
}

// Calls work(i, count) for the registers of a vector: `count` elements from i on, LANES of them but in the last one.
template <class Real, class Work> inline void for_registers(Index size, Work work) {
    Index i = 0;
    for (; i + LANES<Real> <= size; i += LANES<Real>) work(i, LANES<Real>);
    if (i < size) work(i, size - i);
}

// to += from
template <class Real> inline void add(const Real* from, Index size, Real* to) {
    for_registers<Real>(size, [&](Index i, Index count) {
        store_first<Real>(to + i, count, load_first(to + i, count) + load_first(from + i, count));
    });
}

template <class Real, class Function> inline Vector<Real> lane_by_lane(Vector<Real> x, Function function) {
    Real lanes[LANES<Real>];
    store<Real>(lanes, x);
#pragma omp simd
    for (int i = 0; i < LANES<Real>; ++i) lanes[i] = function(lanes[i]);
    return load(lanes);
}
template <class Real> inline Vector<Real> sigmoids(Vector<Real> x) {
    return lane_by_lane<Real>(x, [](Real value) { return sigmoid(value); });
}
template <class Real> inline Vector<Real> hyperbolic_tangents(Vector<Real> x) {
    return lane_by_lane<Real>(x, [](Real value) { return hyperbolic_tangent(value); });
}

template <class Real> inline void copy(const Real* from, Index size, Real* to) {
    for_registers<Real>(size, [&](Index i, Index count) {
        store_first<Real>(to + i, count, load_first(from + i, count));
    });
}

template <class Real> inline Real dot(const Real* a, const Real* b, Index size) {
    Vector<Real> sum = {};
    for_registers<Real>(size, [&](Index i, Index count) {
        sum += load_first(a + i, count) * load_first(b + i, count);
    });
    return sum_of<Real>(sum);
}

constexpr double NORM_EPSILON = 1e-5;  // the default of torch.nn.LayerNorm

// Mean and inverse standard deviation of each of `rows` vectors, which follow one another in memory: their sums do not
// wait for each other.
template <int rows, class Real>
void mean_and_rstd_of(const Real* x, Index size, Real* mean, Real* rstd, double epsilon) {
    Real ones[LANES<Real>];
    std::fill_n(ones, LANES<Real>, Real(1));
    Vector<Real> sums[rows] = {}, squares[rows] = {};
    for_registers<Real>(size, [&](Index i, Index count) {
#pragma GCC unroll 4
        for (int row = 0; row < rows; ++row) sums[row] += load_first(x + row * size + i, count);
    });
#pragma GCC unroll 4
    for (int row = 0; row < rows; ++row) mean[row] = sum_of<Real>(sums[row]) / size;
    for_registers<Real>(size, [&](Index i, Index count) {
        const Vector<Real> used = load_first(ones, count);
#pragma GCC unroll 4
        for (int row = 0; row < rows; ++row) {
            const Vector<Real> centered = load_first(x + row * size + i, count) - mean[row] * used;
            squares[row] += centered * centered;
        }
    });
#pragma GCC unroll 4
    for (int row = 0; row < rows; ++row) rstd[row] = 1 / std::sqrt(sum_of<Real>(squares[row]) / size + Real(epsilon));
}

template <class Real>
void mean_and_rstd(const Real* x, Index size, Real& mean, Real& rstd, double epsilon = NORM_EPSILON) {
    mean_and_rstd_of<1>(x, size, &mean, &rstd, epsilon);
}

// Given the gradient of normalized * gain + bias, writes that of the normalization's input in its place, and adds those
// of gain and bias.
template <class Real>
void norm_backward(Real* __restrict gradient, const Real* __restrict normalized, const Real* __restrict gain, Real rstd,
                   Index size, Real* __restrict grad_gain, Real* __restrict grad_bias) {
    Vector<Real> sums = {}, alongs = {};
    for_registers<Real>(size, [&](Index i, Index count) {
        const Vector<Real> outer = load_first(gradient + i, count), normal = load_first(normalized + i, count);
        store_first<Real>(grad_gain + i, count, load_first(grad_gain + i, count) + outer * normal);
        store_first<Real>(grad_bias + i, count, load_first(grad_bias + i, count) + outer);
        const Vector<Real> inner = outer * load_first(gain + i, count);
        sums += inner;
        alongs += inner * normal;
        // rounded as in the sum, so that the gradient is exactly 0 for size 1
        store_first<Real>(gradient + i, count, inner);
    });
    const Real sum = sum_of<Real>(sums) / size, along = sum_of<Real>(alongs) / size;
#pragma omp simd
    for (Index i = 0; i < size; ++i) gradient[i] = rstd * (gradient[i] - sum - normalized[i] * along);
}

template <class Real, int rows>
inline void dot_rows(const Real* matrix, Index width, const Real* x, Real* out) {
    Vector<Real> sums[rows] = {};
    for (Index c = 0; c < width; c += LANES<Real>) {
        const Vector<Real> factor = load(x + c);
        for (int i = 0; i < rows; ++i) sums[i] += factor * load(matrix + i * width + c);
    }
    for (int i = 0; i < rows; ++i) out[i] = sum_of<Real>(sums[i]);
}

// out = M x for a matrix of `count` rows; `width` is a multiple of LANES.
template <class Real> void matrix_times(const Real* matrix, Index count, Index width, const Real* x, Real* out) {
    Index row = 0;
    for (; row + 4 <= count; row += 4) dot_rows<Real, 4>(matrix + row * width, width, x, out + row);
    for (; row < count; ++row) dot_rows<Real, 1>(matrix + row * width, width, x, out + row);
}

template <class Real, int vectors>
inline void sum_rows(const Real* matrix, Index count, Index width, const Real* x, Real* out) {
    Vector<Real> sums[vectors] = {};
    for (Index row = 0; row < count; ++row, matrix += width)
        for (int j = 0; j < vectors; ++j) sums[j] += x[row] * load(matrix + j * LANES<Real>);
    for (int j = 0; j < vectors; ++j) store<Real>(out + j * LANES<Real>, sums[j]);
}

// out = Mᵀ x for a matrix of `count` rows; `width` is a multiple of LANES.
template <class Real> void transpose_times(const Real* matrix, Index count, Index width, const Real* x, Real* out) {
    constexpr Index many = 8 * LANES<Real>, few = 4 * LANES<Real>;
    Index c = 0;
    for (; c + many <= width; c += many) sum_rows<Real, 8>(matrix + c, count, width, x, out + c);
    for (; c + few <= width; c += few) sum_rows<Real, 4>(matrix + c, count, width, x, out + c);
    const Index left = (width - c) / LANES<Real>;
    if (left == 3) sum_rows<Real, 3>(matrix + c, count, width, x, out + c);
    if (left == 2) sum_rows<Real, 2>(matrix + c, count, width, x, out + c);
    if (left == 1) sum_rows<Real, 1>(matrix + c, count, width, x, out + c);
}

}  // namespace
