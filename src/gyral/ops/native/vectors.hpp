// Vectors of one register, and products of a matrix and a vector whose rows are padded to whole registers.

#pragma once

#include "native/common.hpp"

namespace {

template <class Real> using Vector __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(Real)), may_alias)) = Real;

template <class Real> inline Vector<Real> load(const Real* from) {
    return *reinterpret_cast<const Vector<Real>*>(from);
}
template <class Real> inline void store(Real* to, Vector<Real> value) { *reinterpret_cast<Vector<Real>*>(to) = value; }

template <class Real, int bytes = VECTOR_BYTES, class Value> inline Real sum_of(const Value& value) {
    typedef Real Half __attribute__((vector_size(bytes / 2)));
    Half low, high;
    std::memcpy(&low, &value, sizeof low);
    std::memcpy(&high, reinterpret_cast<const char*>(&value) + sizeof low, sizeof high);
    low += high;
    if constexpr (bytes / 2 > sizeof(Real))
        return sum_of<Real, bytes / 2>(low);
    else
        return low[0];
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
