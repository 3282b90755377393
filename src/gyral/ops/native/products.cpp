// Products of a long matrix of rows: one row for each step and sequence. See `gyral.ops.native.products`.
//
// A matrix of weights is small and is packed once. On some processors, libraries of linear algebra are far from the
// processor's speed for matrices as narrow as these.

#include "native/run.hpp"

namespace products {

// products.py gives these arguments by name. Pointers are to Real.
struct Arguments {
    Index batch, depth, columns, threads;
    Index rows_stride, results_stride;  // elements from one row to the next one
    void* rows;                         // (batch, depth)
    void* weight;                       // (depth, columns); backward: the result, (columns, depth)
    void* results;                      // (batch, columns), the result; backward: given
    void* workspace;                    // products_workspace(...) elements
};

namespace {

constexpr Index TOGETHER = 16;  // rows whose products stay in the first-level cache

template <class Real> struct Product {
    const Arguments& given;
    const Index width;  // padded columns

    explicit Product(const Arguments& a) : given(a), width(padded<Real>(a.columns)) {}

    Real* at(void* base, Index offset = 0) const { return static_cast<Real*>(base) + offset; }
    Index packed_size() const { return given.depth * width; }
    Index share_columns() const {  // of a thread, in the backward pass
        const Index vectors = width / LANES<Real>;
        return (vectors + given.threads - 1) / given.threads * LANES<Real>;
    }
    Index workspace() const {
        const Index forward = packed_size() + given.threads * TOGETHER * width;
        return std::max(forward, given.threads * (DEPTH * (given.depth + ROWS) + (DEPTH + given.depth) * share_columns()));
    }

    // results = rows weight
    void forward() const {
        Real* packed = at(given.workspace);
        pack(at(given.weight), given.columns, 1, given.depth, given.columns, packed);
        for_all_rows(given.batch, TOGETHER, given.threads, packed + packed_size(), TOGETHER * width,
                     [&](Index first, Index last, Real* sums) {
                         multiply(last - first, at(given.rows, first * given.rows_stride), given.rows_stride, packed,
                                  given.depth, given.columns, sums, width, false);
                         for (Index row = first; row < last; ++row, sums += width)
                             copy(sums, given.columns, at(given.results, row * given.results_stride));
                     });
    }

    // weight = resultsᵀ rows: each thread computes a share of the columns of `results`.
    void backward() const {
        const Index share = share_columns(), depth = given.depth;
#pragma omp parallel for num_threads(given.threads) schedule(static)
        for (Index thread = 0; thread < given.threads; ++thread) {
            const Index begin = std::min(given.columns, thread * share), end = std::min(given.columns, begin + share);
            if (begin == end) continue;
            const Index columns = end - begin, sums_row = padded<Real>(columns);
            Real* left = at(given.workspace, thread * (DEPTH * (depth + ROWS) + (DEPTH + depth) * share));
            Real *right = left + DEPTH * (depth + ROWS), *sums = right + DEPTH * share;
            for (Index from = 0; from < given.batch; from += DEPTH) {
                const Index some = std::min(DEPTH, given.batch - from);
                for (Index k = 0; k < some; ++k) {
                    pack_left_row(at(given.rows, (from + k) * given.rows_stride), k, some, depth, left);
                    pack_row(at(given.results, (from + k) * given.results_stride + begin), k, some, columns, right);
                }
                multiply<Real, true>(depth, left, ROWS, right, some, columns, sums, sums_row, from > 0);
            }
            for (Index j = 0; j < columns; ++j)
                for (Index i = 0; i < depth; ++i) at(given.weight)[(begin + j) * depth + i] = sums[i * sums_row + j];
        }
    }
};

}  // namespace
}  // namespace products

extern "C" {

// size of `Arguments` in bytes, with which the caller checks its own definition of the structure
Index products_arguments_size() { return sizeof(products::Arguments); }
Index products_block() { return products::TOGETHER; }

Index products_workspace(const products::Arguments* given, Index is_double) {
    return is_double ? products::Product<double>(*given).workspace() : products::Product<float>(*given).workspace();
}

void products_run(const products::Arguments* given, Index is_double, Index backward) {
    const auto work = [backward](auto product) { backward ? product.backward() : product.forward(); };
    is_double ? work(products::Product<double>(*given)) : work(products::Product<float>(*given));
}
}
