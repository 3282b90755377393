// Vectors of one register, and products of a matrix and a vector whose rows are padded to whole registers.

#pragma once

#include <utility>

#include "native/common.hpp"

namespace {

template <class Real> using Vector __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(Real)), may_alias)) = Real;

template <class Real> inline Vector<Real> load(const Real* from) {
    return *reinterpret_cast<const Vector<Real>*>(from);
}
template <class Real> inline void store(Real* to, Vector<Real> value) { *reinterpret_cast<Vector<Real>*>(to) = value; }

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
