// Products of small matrices that stay in the cache. Their rows are padded with zeros to whole registers, and nothing is
// packed: a chunk of steps uses each matrix only a few times.

#pragma once

#include "native/vectors.hpp"

namespace {

// Calls run(first, width) for the registers of a row, up to VECTORS at once; `width` is a constant.
template <class Real, class Run> inline void for_panels(Index columns, const Run& run) {
    Index first = 0, left = (columns + LANES<Real> - 1) / LANES<Real>;
    while (left > 0) {
        const Index width = left == 4 ? 2 : std::min<Index>(VECTORS, left);  // not 3 and 1: a tile of 1 waits for its sums
        if (width == 1) run(first, std::integral_constant<int, 1>());
        if (width == 2) run(first, std::integral_constant<int, 2>());
        if (width == 3) run(first, std::integral_constant<int, 3>());
        first += width * LANES<Real>;
        left -= width;
    }
}

// c (rows, columns) = or += a (rows, depth) b (depth, columns). `transposed`: a is stored as (depth, rows).
template <bool transposed = false, class Real>
inline void product(Index rows, Index columns, Index depth, const Real* a, Index a_row, const Real* b, Index b_row,
                    Real* c, Index c_row, bool add) {
    for_panels<Real>(columns, [&](Index first, auto width) {
        for (Index row = 0; row < rows; row += ROWS)
            with_rows(std::min<Index>(ROWS, rows - row), [&](auto exact) {
                tile<Real, exact, width, transposed, false>(transposed ? a + row : a + row * a_row, a_row, b + first,
                                                            b_row, depth, c + row * c_row + first, c_row, add, nullptr);
            });
    });
}

template <class Real, int vectors> inline void load_panel(const Real* from, Vector<Real> (&to)[vectors]) {
#pragma GCC unroll 3
    for (int j = 0; j < vectors; ++j) {
        to[j] = load(from + j * LANES<Real>);
        keep_in_register(to[j]);
    }
}

template <class Real, int rows, int vectors>
inline void add_to_rows(const Vector<Real> (&sum)[rows][vectors], Real* c, Index c_row) {
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < vectors; ++j) {
            Real* to = c + i * c_row + j * LANES<Real>;
            store<Real>(to, load(to) + sum[i][j]);
        }
}

// c (rows, columns) += a b for a lower triangular a, whose row i ends with column (i + 1) * each. What is behind the end of
// a row of a is not read, and no row of b is multiplied by it: zero times infinity is no number.
template <class Real, int rows, int vectors>
inline void lower_rows(const Real* a, Index a_row, Index each, Index before, const Real* b, Index b_row, Real* c, Index c_row) {
    Vector<Real> sum[rows][vectors] = {}, known[vectors];
    a += before * a_row;
    Index k = 0;
    for (; k < before * each; ++k, b += b_row) {
        load_panel<Real, vectors>(b, known);
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < vectors; ++j) sum[i][j] += a[i * a_row + k] * known[j];
    }
#pragma GCC unroll 8
    for (int first = 0; first < rows; ++first)
        for (Index m = 0; m < each; ++m, ++k, b += b_row) {
            load_panel<Real, vectors>(b, known);
#pragma GCC unroll 8
            for (int i = first; i < rows; ++i)
                for (int j = 0; j < vectors; ++j) sum[i][j] += a[i * a_row + k] * known[j];
        }
    add_to_rows<Real, rows, vectors>(sum, c + before * c_row, c_row);
}
template <class Real>
inline void lower_product(Index count, Index each, Index columns, const Real* a, Index a_row, const Real* b, Index b_row,
                          Real* c, Index c_row) {
    for_panels<Real>(columns, [&](Index first, auto width) {
        for (Index row = 0; row < count; row += ROWS)
            with_rows(std::min<Index>(ROWS, count - row), [&](auto rows) {
                lower_rows<Real, rows, width>(a, a_row, each, row, b + first, b_row, c + first, c_row);
            });
    });
}

// c (count, columns) += aᵀ b for such an a with `count` columns.
template <class Real, int rows, int vectors>
inline void upper_rows(const Real* a, Index a_row, Index each, Index before, Index last, const Real* b, Index b_row, Real* c,
                       Index c_row) {
    Vector<Real> sum[rows][vectors] = {}, known[vectors];
    Index k = before / each;
    a += k * a_row + before, b += k * b_row;
    for (Index reached = (k + 1) * each - before; k < last; ++k, a += a_row, b += b_row, reached += each) {
        if (reached >= rows) break;
        load_panel<Real, vectors>(b, known);
#pragma GCC unroll 8
        for (int i = 0; i < rows; ++i)
            if (i < reached)
                for (int j = 0; j < vectors; ++j) sum[i][j] += a[i] * known[j];
    }
    for (; k < last; ++k, a += a_row, b += b_row) {
        load_panel<Real, vectors>(b, known);
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < vectors; ++j) sum[i][j] += a[i] * known[j];
    }
    add_to_rows<Real, rows, vectors>(sum, c + before * c_row, c_row);
}
template <class Real>
inline void upper_product(Index count, Index each, Index columns, const Real* a, Index a_row, const Real* b, Index b_row,
                          Real* c, Index c_row) {
    for_panels<Real>(columns, [&](Index first, auto width) {
        for (Index row = 0; row < count; row += ROWS)
            with_rows(std::min<Index>(ROWS, count - row), [&](auto rows) {
                upper_rows<Real, rows, width>(a, a_row, each, row, count / each, b + first, b_row, c + first, c_row);
            });
    });
}

// Some rows of x = (I - n)^-1 x for a strictly lower triangular n, given the `before` rows above them.
template <class Real, int rows, int vectors>
inline void solve_rows(const Real* n, Index n_row, Index before, Real* x, Index x_row) {
    Vector<Real> sum[rows][vectors];
    Real* own = x + before * x_row;
    n += before * n_row;
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < vectors; ++j) sum[i][j] = load(own + i * x_row + j * LANES<Real>);
    for (Index k = 0; k < before; ++k) {
        Vector<Real> known[vectors];
        load_panel<Real, vectors>(x + k * x_row, known);
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < vectors; ++j) sum[i][j] += n[i * n_row + k] * known[j];
    }
#pragma GCC unroll 8
    for (int k = 0; k < rows; ++k)
#pragma GCC unroll 8
        for (int i = k + 1; i < rows; ++i)
            for (int j = 0; j < vectors; ++j) sum[i][j] += n[i * n_row + before + k] * sum[k][j];
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < vectors; ++j) store<Real>(own + i * x_row + j * LANES<Real>, sum[i][j]);
}

// The same for nᵀ, given the rows from `last` to `size`.
template <class Real, int rows, int vectors>
inline void solve_rows_transposed(const Real* n, Index n_row, Index last, Index size, Real* x, Index x_row) {
    Vector<Real> sum[rows][vectors];
    const Index first = last - rows;
    Real* own = x + first * x_row;
    n += first;
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < vectors; ++j) sum[i][j] = load(own + i * x_row + j * LANES<Real>);
    for (Index k = last; k < size; ++k) {
        Vector<Real> known[vectors];
        load_panel<Real, vectors>(x + k * x_row, known);
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < vectors; ++j) sum[i][j] += n[k * n_row + i] * known[j];
    }
#pragma GCC unroll 8
    for (int k = rows - 1; k > 0; --k)
#pragma GCC unroll 8
        for (int i = 0; i < k; ++i)
            for (int j = 0; j < vectors; ++j) sum[i][j] += n[(first + k) * n_row + i] * sum[k][j];
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < vectors; ++j) store<Real>(own + i * x_row + j * LANES<Real>, sum[i][j]);
}

// x (size, columns) = (I - n)^-1 x, or (I - nᵀ)^-1 x, for a strictly lower triangular n (size, size).
template <bool transposed, class Real>
inline void solve(Index size, Index columns, const Real* n, Index n_row, Real* x, Index x_row) {
    for_panels<Real>(columns, [&](Index first, auto width) {
        for (Index done = 0; done < size; done += ROWS)
            with_rows(std::min<Index>(ROWS, size - done), [&](auto rows) {
                if constexpr (transposed)
                    solve_rows_transposed<Real, rows, width>(n, n_row, size - done, size, x + first, x_row);
                else
                    solve_rows<Real, rows, width>(n, n_row, done, x + first, x_row);
            });
    });
}

#if __has_builtin(__builtin_shufflevector)
// Exchanges the off-diagonal blocks of `distance` rows and columns in all blocks of twice the size.
template <class Real, int distance, std::size_t... lanes>
inline void exchange(Vector<Real>* rows, std::index_sequence<lanes...> all) {
    constexpr std::size_t count = sizeof...(lanes), d = distance;
#pragma GCC unroll 16
    for (std::size_t i = 0; i < count; ++i) {
        if (i & d) continue;
        const Vector<Real> upper = rows[i], lower = rows[i + d];
        rows[i] = __builtin_shufflevector(upper, lower, (lanes & d ? count + lanes - d : lanes)...);
        rows[i + d] = __builtin_shufflevector(upper, lower, (lanes & d ? count + lanes : lanes + d)...);
    }
    if constexpr (2 * distance < int(count)) exchange<Real, 2 * distance>(rows, all);
}
#endif

// to (columns, rows) = fromᵀ (rows, columns), with zeros beyond the last row
template <class Real>
inline void transpose(Index rows, Index columns, const Real* from, Index from_row, Real* to, Index to_row) {
    constexpr int N = LANES<Real>;
    for (Index i = 0; i < rows; i += N)
        for (Index j = 0; j < columns; j += N) {
            const Index height = std::min<Index>(N, rows - i), width = std::min<Index>(N, columns - j);
            Vector<Real> block[N];
#pragma GCC unroll 16
            for (int k = 0; k < N; ++k) block[k] = k < height ? load(from + (i + k) * from_row + j) : Vector<Real>{};
#if __has_builtin(__builtin_shufflevector)
            exchange<Real, 1>(block, std::make_index_sequence<N>());
#else  // GCC before version 12; slower, because it goes through memory
            Vector<Real> turned[N];
            for (int k = 0; k < N; ++k)
                for (int l = 0; l < N; ++l) turned[l][k] = block[k][l];
            std::copy(turned, turned + N, block);
#endif
#pragma GCC unroll 16
            for (int k = 0; k < N; ++k)
                if (k < width) store<Real>(to + (j + k) * to_row + i, block[k]);
        }
}

}  // namespace
