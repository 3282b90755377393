// The recurrence of sLSTM, forward and backward; see gyral/ops/slstm/__init__.py.
//
// A block of rows takes all steps together. For each head, a step is the product with R, then functions of one unit.
// The backward pass computes the gates again from their sums and from the state before the step, which are saved.

#include "native/run.hpp"

namespace slstm {

// Pointers are to Real unless another type is given, and null for absent tensors.
struct Arguments {
    Index steps, batch, size, heads;  // T, B, N, H
    Index threads;
    double lowest;          // m before the first step
    void* projected;        // (T, B, 4N), rows [i; f; z; o]
    void* weight_hh;        // (H, 4, d, d)
    void* hidden;           // (B, N) before the first step, as the three below
    void* cell;
    void* normalizer;
    void* scale;
    void* lengths;          // (B) Index
    void* starts;           // (T, B) bool
    void* outputs;          // (T, B, N)
    void* sums;             // (T, B, 4N): the arguments of the gates
    void* states;           // (T, B, 3N): c, n and m after each step
    void* final_hidden;     // (B, N), as the three below
    void* final_cell;
    void* final_normalizer;
    void* final_scale;
    void* workspace;
    // of the backward pass
    void* grad_outputs;     // (T, B, N)
    void* grad_projected;   // (T, B, 4N)
    void* grad_hidden;      // (B, N): before it the gradient of the final state, after it that of the initial one
    void* grad_cell;        // likewise, as the two below
    void* grad_normalizer;
    void* grad_scale;
};

inline double log_of_one_plus(double u) { return std::log1p(u); }

// For u in [0, 1]: the series of 2 artanh(s) with s = u / (2 + u) <= 1/3, in a form that compilers vectorize.
inline float log_of_one_plus(float u) {
    const float s = u / (2.0f + u), q = s * s;
    const float series =
        1.0f + q * (1.0f / 3 + q * (1.0f / 5 + q * (1.0f / 7 + q * (1.0f / 9 + q * (1.0f / 11 + q / 13)))));
    return 2.0f * s * series;
}

// The gates of a unit, from the sums and from m before the step.
template <class Real> struct Gates {
    Real kept_log, scale, kept, write, value, output;

    Gates(Real i, Real f, Real z, Real o, Real scale_before) {
        const Real log_sigmoid = (f < 0 ? f : Real(0)) - log_of_one_plus(exponential(-std::fabs(f)));
        kept_log = log_sigmoid + scale_before;
        scale = kept_log > i || kept_log != kept_log ? kept_log : i;  // a NaN stays a NaN
        kept = exponential(kept_log - scale);
        write = exponential(i - scale);
        value = hyperbolic_tangent(z);
        output = sigmoid(o);
    }
};

template <class Real> struct Scan {
    const Arguments& given;
    const Index size = given.size, heads = given.heads, width = size / heads, batch = given.batch;
    const Index product = padded<Real>(4 * width), back = padded<Real>(width);
    const Index packed_head = std::max(width * product, 4 * width * back);
    // of a thread: y, c, n and m before the step, the products of a head, and gradients of its sums
    const Index temporaries = BLOCK * (4 * size + heads * product + 4 * width);

    static Real* at(void* base, Index offset = 0) { return base ? static_cast<Real*>(base) + offset : nullptr; }

    void pack_weight(bool backward, Real* packed) const {
        for (Index head = 0; head < heads; ++head, packed += packed_head) {
            const Real* weight = at(given.weight_hh, head * 4 * width * width);
            backward ? pack(weight, width, Index(1), 4 * width, width, packed)
                     : pack(weight, Index(1), width, width, 4 * width, packed);
        }
    }

    bool is_start(Index t, Index row) const {
        return given.starts && static_cast<const bool*>(given.starts)[t * batch + row];
    }
    Index length(Index row) const {
        return given.lengths ? static_cast<const Index*>(given.lengths)[row] : given.steps;
    }

    // Pointers to the parts of a row have names of their own, so that the compiler knows that they do not overlap.
    void forward_head(const Real* __restrict x, const Real* __restrict products, Real* __restrict y, Real* __restrict c,
                      Real* __restrict n, Real* __restrict m, Real* __restrict sums) const {
        Real *__restrict si = sums, *__restrict sf = sums + size, *__restrict sz = sums + 2 * size,
                        *__restrict so = sums + 3 * size;
#pragma omp simd
        for (Index j = 0; j < width; ++j) {
            si[j] = x[j] + products[j];
            sf[j] = x[size + j] + products[width + j];
            sz[j] = x[2 * size + j] + products[2 * width + j];
            so[j] = x[3 * size + j] + products[3 * width + j];
            const Gates<Real> gates(si[j], sf[j], sz[j], so[j], m[j]);
            c[j] = gates.kept * c[j] + gates.write * gates.value;
            n[j] = gates.kept * n[j] + gates.write;
            m[j] = gates.scale;
            y[j] = gates.output * c[j] / n[j];
        }
    }

    void forward(Index first, Index last, const Real* packed, Real* buffer) const {
        const Index rows = last - first;
        Real *y = buffer, *c = y + BLOCK * size, *n = c + BLOCK * size, *m = n + BLOCK * size;
        Real* products = m + BLOCK * size;
        std::copy_n(at(given.hidden, first * size), rows * size, y);
        std::copy_n(at(given.cell, first * size), rows * size, c);
        std::copy_n(at(given.normalizer, first * size), rows * size, n);
        std::copy_n(at(given.scale, first * size), rows * size, m);
        for (Index t = 0; t < given.steps; ++t) {
            for (Index row = 0; row < rows; ++row)
                if (is_start(t, first + row) && t < length(first + row)) {
                    for (Real* part : {y, c, n}) std::fill_n(part + row * size, size, Real(0));
                    std::fill_n(m + row * size, size, Real(given.lowest));
                }
            for (Index head = 0; head < heads; ++head)
                multiply<Real>(rows, y + head * width, size, packed + head * packed_head, width, 4 * width,
                               products + head * product, heads * product, false);
            for (Index row = 0; row < rows; ++row) {
                const Index place = t * batch + first + row;
                Real *out = at(given.outputs, place * size), *states = at(given.states, place * 3 * size);
                if (t >= length(first + row)) {
                    std::fill_n(out, size, Real(0));
                    continue;
                }
                for (Index head = 0; head < heads; ++head) {
                    const Index from = head * width, own = row * size + from;
                    forward_head(at(given.projected, place * 4 * size + from),
                                 products + (row * heads + head) * product, y + own, c + own, n + own, m + own,
                                 at(given.sums, place * 4 * size + from));
                }
                std::copy_n(y + row * size, size, out);
                std::copy_n(c + row * size, size, states);
                std::copy_n(n + row * size, size, states + size);
                std::copy_n(m + row * size, size, states + 2 * size);
            }
        }
        std::copy_n(y, rows * size, at(given.final_hidden, first * size));
        std::copy_n(c, rows * size, at(given.final_cell, first * size));
        std::copy_n(n, rows * size, at(given.final_normalizer, first * size));
        std::copy_n(m, rows * size, at(given.final_scale, first * size));
    }

    void backward_row(const Real* __restrict sums, const Real* __restrict c, const Real* __restrict n,
                      const Real* __restrict m, bool has_before, const Real* __restrict grad_output,
                      const Real* __restrict gy, Real* __restrict gc, Real* __restrict gn, Real* __restrict gm,
                      Real* __restrict grad_sums) const {
        Real *__restrict gi = grad_sums, *__restrict gf = grad_sums + size, *__restrict gz = grad_sums + 2 * size,
                        *__restrict go = grad_sums + 3 * size;
        const Real before = has_before, lowest = given.lowest;
#pragma omp simd
        for (Index j = 0; j < size; ++j) {
            const Real i = sums[j], f = sums[size + j];
            const Real c0 = has_before ? c[j] : Real(0), n0 = has_before ? n[j] : Real(0);
            const Gates<Real> gates(i, f, sums[2 * size + j], sums[3 * size + j], has_before ? m[j] : lowest);
            const Real cell = gates.kept * c0 + gates.write * gates.value, inverse = 1 / (gates.kept * n0 + gates.write);
            const Real ratio = cell * inverse, g = gy[j] + (grad_output ? grad_output[j] : Real(0));
            const Real along = g * gates.output * inverse;
            const Real grad_cell = gc[j] + along, grad_normalizer = gn[j] - along * ratio;
            const Real kept = (grad_cell * c0 + grad_normalizer * n0) * gates.kept;
            const Real write = (grad_cell * gates.value + grad_normalizer) * gates.write;
            const Real rest = gm[j] - kept - write;  // of m, the larger of the two logarithms
            const Real share = gates.kept_log > i ? Real(1) : gates.kept_log < i ? Real(0) : Real(0.5);
            const Real grad_kept = kept + share * rest;
            gi[j] = write + (1 - share) * rest;
            gf[j] = grad_kept * sigmoid(-f);
            gz[j] = grad_cell * gates.write * (1 - gates.value * gates.value);
            go[j] = g * ratio * gates.output * (1 - gates.output);
            gc[j] = before * grad_cell * gates.kept;
            gn[j] = before * grad_normalizer * gates.kept;
            gm[j] = before * grad_kept;
        }
    }

    void backward(Index first, Index last, const Real* packed, Real* buffer) const {
        const Index rows = last - first;
        Real *of_head = buffer, *products = buffer + BLOCK * 4 * width;
        for (Index t = given.steps - 1; t >= 0; --t) {
            for (Index row = 0; row < rows; ++row) {
                const Index place = t * batch + first + row, own = (first + row) * size;
                Real* grad_sums = at(given.grad_projected, place * 4 * size);
                if (t >= length(first + row)) {
                    std::fill_n(grad_sums, 4 * size, Real(0));
                    continue;
                }
                const Real* states = t ? at(given.states, (place - batch) * 3 * size) : nullptr;
                backward_row(at(given.sums, place * 4 * size), t ? states : at(given.cell, own),
                             t ? states + size : at(given.normalizer, own),
                             t ? states + 2 * size : at(given.scale, own), !is_start(t, first + row),
                             at(given.grad_outputs, place * size), at(given.grad_hidden, own), at(given.grad_cell, own),
                             at(given.grad_normalizer, own), at(given.grad_scale, own), grad_sums);
            }
            for (Index head = 0; head < heads; ++head) {
                for (Index row = 0; row < rows; ++row)
                    for (Index gate = 0; gate < 4; ++gate)
                        std::copy_n(at(given.grad_projected, (t * batch + first + row) * 4 * size + gate * size +
                                                                 head * width),
                                    width, of_head + (row * 4 + gate) * width);
                multiply<Real>(rows, of_head, 4 * width, packed + head * packed_head, 4 * width, width, products, back,
                               false);
                for (Index row = 0; row < rows; ++row) {
                    Real* grad_hidden = at(given.grad_hidden, (first + row) * size + head * width);
                    if (t >= length(first + row)) continue;
                    if (is_start(t, first + row))
                        std::fill_n(grad_hidden, width, Real(0));
                    else
                        std::copy_n(products + row * back, width, grad_hidden);
                }
            }
        }
    }
};

template <class Real> Index workspace(const Arguments& given) {
    const Scan<Real> scan{given};
    return scan.heads * scan.packed_head + given.threads * scan.temporaries;
}

template <class Real> void run(const Arguments& given, bool is_backward) {
    const Scan<Real> scan{given};
    Real* packed = scan.at(given.workspace);
    scan.pack_weight(is_backward, packed);
    for_all_rows(given.batch, BLOCK, given.threads, packed + scan.heads * scan.packed_head, scan.temporaries,
                 [&](Index first, Index last, Real* buffer) {
                     is_backward ? scan.backward(first, last, packed, buffer)
                                 : scan.forward(first, last, packed, buffer);
                 });
}

}  // namespace slstm

extern "C" {
Index slstm_arguments_size() { return sizeof(slstm::Arguments); }
Index slstm_block() { return BLOCK; }  // rows that go through a step together
Index slstm_workspace(const slstm::Arguments* given, Index is_double) {
    return is_double ? slstm::workspace<double>(*given) : slstm::workspace<float>(*given);
}
void slstm_run(const slstm::Arguments* given, Index is_double, Index backward) {
    is_double ? slstm::run<double>(*given, backward) : slstm::run<float>(*given, backward);
}
}
