// RUM over a whole sequence on the CPU, forward and backward: see `gyral.ops.rum` for arguments and results.
//
// A step of a block of rows is one product with the recurrent weights, packed once per call, and passes over rows in the
// cache. Backward recomputes values that are cheap to compute, and overwrites saved values with gradients.
//
// T steps, B batch size, N hidden size, G parts of a row: [memory target, (update gate,) embedded input]. For embedded
// input e and target tau, with u = e/|e|, v = tau/|tau| and c = u.v, the rotation is I + [u w] C [u w]^T with a 2 by 2
// matrix C:
//   c >= -1/2:  w = v,                           C = [[-s, -s], [2 - s, -s]],          s = 1 / (1 + c)
//   c < -1/2:   w = (v - c u) / s,               C = [[c - 1, -s], [s, c - 1]],        s = |v - c u|
// because the first form, which is cheaper, loses precision as the angle approaches pi.

#pragma once

#include "native/run.hpp"
#include "native/vectors.hpp"

namespace rum {

// cpu.py gives these arguments by name. Pointers are to Real unless noted otherwise, and null for absent tensors.
struct Arguments {
    Index steps, batch, size, gated, activation, lag, threads, checkpoint_every;
    double eta;        // 0: none
    double keep_mean;  // zoneout in evaluation; 0: none
    double epsilon;    // of the layer normalizations
    void* parts;       // (T, B, G, N); after forward: normalized or plain target, normalized or sigmoid gate, embedded
    void* weight;      // ((G - 1) N, N)
    void* hidden;      // (B, N) before the first step
    void* norms;       // (3, 2, N)
    void* keep;        // (T, B, N)
    void* lengths;     // Index (B)
    void* starts;      // bytes (T, B): whether the state before step t is h = 0, R = I; ignored if lag is 0
    void* slots;       // Index (T, B), only with starts and an associative memory: where `replaced` stores R
    void* outputs;     // (T, B, N)
    void* past;        // (T, B, N): h before step t is its row t - lag, or `hidden`; for a single cell: outputs, lag 1
    void* final_hidden;  // (B, N)
    void* scalars;       // (T, B, SCALARS)
    void* candidates;    // (T, B, N), only with an associative memory: e + R h
    void* memory;        // (B, N, rum_padded(N)), null without associative memory; forward: updated; backward: run back
    void* checkpoints;   // (ceil(T / checkpoint_every) - 1, B, N, rum_padded(N))
    void* replaced;      // (starts, N, rum_padded(N)): R before each reset
    void* workspace;     // rum_workspace(...) elements
    void* grad_outputs;  // (T, B, N)
    void* grad_h0;       // (B, N): of the final state, and on return of the initial one
    void* grad_memory;   // (B, N, rum_padded(N)), likewise
    void* grad_bias;     // (blocks, 2, G, N) zeros: two partial sums per block of rows
    void* grad_norms;    // (blocks, 2, 3, 2, N) zeros, likewise
};

namespace {

constexpr int SCALARS = 10;
enum Scalar { INVERSE_E, INVERSE_TAU, COSINE, ALPHA, BETA, INVERSE_H, RSTD_TARGET, RSTD_GATE, MEAN_Z, RSTD_Z };
enum Norm { TARGET, GATE, CANDIDATE };
constexpr double LARGEST_INVERSE_H = 1e6;  // 1 / SMALLEST_NORM of `gyral.ops.rum.naive`

// ---------------------------------------------------------------- the rotation

template <class Real>
struct Rotation {
    Real inverse_e, inverse_tau, cosine;
    bool obtuse, opposite;
    Real sine;  // for an obtuse angle
    Real c11, c12, c21, c22;
    const Real* w;  // (N), times `scale`
    Real scale;
};

// The axis of the smallest coordinate, orthogonalized against u = e * inverse, as in `gyral.ops.rotation`.
template <class Real>
void perpendicular(const Real* e, Real inverse, Index size, Real* out) {
    Index smallest = 0;
    for (Index i = 1; i < size; ++i)
        if (std::fabs(e[i]) < std::fabs(e[smallest])) smallest = i;
    const Real along = e[smallest] * inverse;
    for (Index i = 0; i < size; ++i) out[i] = (i == smallest) - e[i] * inverse * along;
}

// The rotation from e to tau, given their norms and cosine; `buffer` stores w for an obtuse angle.
template <class Real>
Rotation<Real> make_rotation(const Real* e, const Real* tau, Index size, Real inverse_e, Real inverse_tau, Real cosine,
                             Real* buffer) {
    Rotation<Real> rotation{inverse_e, inverse_tau, cosine, cosine < Real(-0.5), false, 0, 0, 0, 0, 0, tau, inverse_tau};
    if (!rotation.obtuse) {
        const Real s = 1 / (1 + cosine);
        rotation.c11 = rotation.c12 = rotation.c22 = -s;
        rotation.c21 = 2 - s;
        return rotation;
    }
    for (Index i = 0; i < size; ++i) buffer[i] = tau[i] * inverse_tau - cosine * (e[i] * inverse_e);
    const Real rest = dot(e, buffer, size) * inverse_e;  // component along u due to rounding
    for (Index i = 0; i < size; ++i) buffer[i] -= rest * (e[i] * inverse_e);
    const Real smallest_sine = 8 * std::numeric_limits<Real>::epsilon();
    rotation.sine = std::sqrt(dot(buffer, buffer, size));
    rotation.opposite = rotation.sine < smallest_sine;
    if (rotation.opposite) {
        rotation.sine = smallest_sine;
        perpendicular(e, inverse_e, size, buffer);
    }
    const Real inverse = 1 / std::sqrt(dot(buffer, buffer, size));
    for (Index i = 0; i < size; ++i) buffer[i] *= inverse;
    rotation.c11 = rotation.c22 = cosine - 1;
    rotation.c12 = -rotation.sine;
    rotation.c21 = rotation.sine;
    rotation.w = buffer;
    rotation.scale = 1;
    return rotation;
}

// ---------------------------------------------------------------- the recurrence

template <class Real, class Activation>
struct Scan {
    const Arguments& given;
    const Index steps, batch, size, gated, parts_count, recurrent;  // recurrent = (G - 1) N columns
    const Index products_row, carry_row;
    const Index temporaries;  // elements of workspace per thread

    explicit Scan(const Arguments& a)
        : given(a), steps(a.steps), batch(a.batch), size(a.size), gated(a.gated), parts_count(2 + a.gated),
          recurrent((1 + a.gated) * a.size), products_row(padded<Real>(recurrent)), carry_row(padded<Real>(size)),
          temporaries(rows_a_thread() * (products_row + carry_row) + TEMPORARIES * carry_row) {}

    static constexpr int TOGETHER = 4;  // rows of R that a pass updates: they share the loads of u, w and h
    static constexpr Index TEMPORARIES = 11;  // vectors per row; the last one is h = 0 after a reset

    template <class Pointer = Real> Pointer* at(void* base, Index offset = 0) const {
        return base ? static_cast<Pointer*>(base) + offset : nullptr;
    }

    // few with an associative memory, even for large weights: the memories of all rows do not fit into the cache
    Index rows_together() const { return given.memory ? BLOCK : rows_at_once(weight_bytes(), rows_a_thread()); }
    Index weight_bytes() const { return recurrent * size * Index(sizeof(Real)); }
    Index outputs_width() const { return size; }
    Index parts_width() const { return parts_count * size; }
    Index product_width() const { return recurrent; }
    Index kept_width() const { return 0; }

    Index blocks() const { return (batch + BLOCK - 1) / BLOCK; }
    Index rows_a_thread() const { return (blocks() + given.threads - 1) / given.threads * BLOCK; }
    Index packed_size() const { return std::max(recurrent * padded<Real>(size), size * padded<Real>(recurrent)); }

    Real* parts(Index t, Index row) const { return at(given.parts, (t * batch + row) * parts_count * size); }
    Real* vector(void* base, Index t, Index row) const { return at(base, (t * batch + row) * size); }
    Real* scalars(Index t, Index row) const { return at(given.scalars, (t * batch + row) * SCALARS); }
    Real* matrix(void* base, Index row) const { return at(base, row * size * carry_row); }
    Real* checkpoint(Index t, Index row) const {  // of the memory after step t, or null
        const Index every = given.checkpoint_every;
        if (!given.memory || (t + 1) % every || t + 1 >= steps) return nullptr;
        return matrix(given.checkpoints, ((t + 1) / every - 1) * batch + row);
    }
    const Real* previous(Index t, Index row) const {
        return t < given.lag ? vector(given.hidden, 0, row) : vector(given.past, t - given.lag, row);
    }
    // A recurrence without lag reads what another one wrote in the same step, after a reset.
    bool starts(Index t, Index row) const {
        return given.starts && given.lag && *at<const char>(given.starts, t * batch + row);
    }
    // h that step t of a row reads; `zeros` is memory for h = 0
    const Real* read(Index t, Index row, Real* zeros) const {
        if (!starts(t, row)) return previous(t, row);
        std::fill_n(zeros, size, Real(0));
        return zeros;
    }
    // The same; `buffer` is the vectors of a row.
    const Real* before(Index t, Index row, Real* buffer) const {
        return read(t, row, buffer + (TEMPORARIES - 1) * carry_row);
    }
    Real* replaced(Index t, Index row) const {
        return matrix(given.replaced, *at<Index>(given.slots, t * batch + row));
    }
    Index length(Index row) const { return given.lengths ? *at<Index>(given.lengths, row) : steps; }
    const Real* gain(Norm norm) const { return at(given.norms, 2 * norm * size); }

    // ------------------------------------------------------------ forward

    // Rows of R and of its gradient, and the vectors multiplied with them, are zero-padded to `carry_row`.
    Real* widened(const Real* x, Real factor, Real* out) const {
        for (Index i = 0; i < size; ++i) out[i] = x[i] * factor;
        std::fill_n(out + size, carry_row - size, Real(0));
        return out;
    }

    // R is reset to the identity.
    void restart_memory(Index t, Index row) const {
        Real* memory = matrix(given.memory, row);
        std::memcpy(replaced(t, row), memory, size * carry_row * sizeof(Real));
        std::fill_n(memory, size * carry_row, Real(0));
        for (Index i = 0; i < size; ++i) memory[i * carry_row + i] = 1;
    }

    // R (N, N) -> R Rot, and y = (R Rot) h
    void memory_forward(Real* __restrict memory, const Rotation<Real>& rotation, const Real* __restrict h,
                        const Real* __restrict u, const Real* __restrict w, Real* __restrict y, Real along_u,
                        Real along_w) const {
        const Real a = rotation.c11 * along_u + rotation.c12 * along_w;
        const Real b = rotation.c21 * along_u + rotation.c22 * along_w;
        Index i = 0;
        for (; i + TOGETHER <= size; i += TOGETHER)
            rows_forward<TOGETHER>(memory + i * carry_row, rotation, h, u, w, y + i, a, b);
        for (; i < size; ++i) rows_forward<1>(memory + i * carry_row, rotation, h, u, w, y + i, a, b);
    }

    template <int rows>
    void rows_forward(Real* __restrict memory, const Rotation<Real>& rotation, const Real* __restrict h,
                      const Real* __restrict u, const Real* __restrict w, Real* __restrict y, Real a, Real b) const {
        Vector<Real> rh[rows] = {}, ru[rows] = {}, rw[rows] = {};
        for (Index j = 0; j < carry_row; j += LANES<Real>)
            for (int k = 0; k < rows; ++k) {
                const Vector<Real> now = load(memory + k * carry_row + j);
                rh[k] += now * load(h + j);
                ru[k] += now * load(u + j);
                rw[k] += now * load(w + j);
            }
        Real to_u[rows], to_w[rows];
        for (int k = 0; k < rows; ++k) {
            const Real along_u = sum_of<Real>(ru[k]), along_w = sum_of<Real>(rw[k]);
            y[k] = sum_of<Real>(rh[k]) + a * along_u + b * along_w;
            to_u[k] = along_u * rotation.c11 + along_w * rotation.c21;
            to_w[k] = along_u * rotation.c12 + along_w * rotation.c22;
        }
        for (Index j = 0; j < carry_row; j += LANES<Real>)
            for (int k = 0; k < rows; ++k) {
                Real* now = memory + k * carry_row + j;
                store<Real>(now, load(now) + (to_u[k] * load(u + j) + to_w[k] * load(w + j)));
            }
    }

    void forward_row(Index t, Index row, const Real* __restrict product, Real* buffer) const {
        Real* __restrict target = parts(t, row);
        Real* __restrict gate = target + size;
        const Real* __restrict e = target + recurrent;
        const Real* __restrict h = before(t, row, buffer);
        Real* __restrict saved = scalars(t, row);
        Real* __restrict out = vector(given.outputs, t, row);
        Real *__restrict tau = buffer, *__restrict z = buffer + carry_row, *across = buffer + 2 * carry_row;

        for (Index i = 0; i < size; ++i) target[i] += product[i];
        if (given.norms) {
            normalize(target, saved[RSTD_TARGET]);
            const Real *gains = gain(TARGET), *biases = gains + size;
            for (Index i = 0; i < size; ++i) tau[i] = target[i] * gains[i] + biases[i];
        } else {
            tau = target;
        }

        Real ee = 0, tt = 0, et = 0, eh = 0, th = 0;
#pragma omp simd reduction(+ : ee, tt, et, eh, th)
        for (Index i = 0; i < size; ++i) {
            ee += e[i] * e[i];
            tt += tau[i] * tau[i];
            et += e[i] * tau[i];
            eh += e[i] * h[i];
            th += tau[i] * h[i];
        }
        Real inverse_e = inverse_norm(ee), inverse_tau = inverse_norm(tt), cosine = et * inverse_e * inverse_tau;
        // products of vectors that are too long overflow, and infinity times zero is no number
        if (inverse_e == 0 || inverse_tau == 0) inverse_e = inverse_tau = eh = th = 0, cosine = 1;
        const Rotation<Real> rotation = make_rotation(e, tau, size, inverse_e, inverse_tau, cosine, across);
        const Real alpha = eh * inverse_e, beta = rotation.obtuse ? dot(rotation.w, h, size) : th * inverse_tau;
        saved[INVERSE_E] = inverse_e;
        saved[INVERSE_TAU] = inverse_tau;
        saved[COSINE] = cosine;
        saved[ALPHA] = alpha;
        saved[BETA] = beta;

        if (given.memory) {
            if (starts(t, row)) restart_memory(t, row);
            z = vector(given.candidates, t, row);
            const Real* u = widened(e, inverse_e, buffer + 3 * carry_row);
            const Real* w = widened(rotation.w, rotation.scale, buffer + 4 * carry_row);
            memory_forward(matrix(given.memory, row), rotation, widened(h, 1, buffer + 5 * carry_row), u, w, z, alpha,
                           beta);
            for (Index i = 0; i < size; ++i) z[i] += e[i];
            if (Real* copy = checkpoint(t, row))
                std::memcpy(copy, matrix(given.memory, row), size * carry_row * sizeof(Real));
        } else {
            candidate_input(rotation, e, h, alpha, beta, z);
        }

        const Real *gains = gain(CANDIDATE), *biases = gains + size;
        Real mean = 0, rstd = 1;
        if (given.norms) {
            mean_and_rstd(z, size, mean, rstd, given.epsilon);
            saved[MEAN_Z] = mean;
            saved[RSTD_Z] = rstd;
            for (Index i = 0; i < size; ++i)
                out[i] = Activation::value((z[i] - mean) * rstd * gains[i] + biases[i]);
        } else {
#pragma omp simd
            for (Index i = 0; i < size; ++i) out[i] = Activation::value(z[i]);
        }
        if (gated) {
            const Real* __restrict rest = product + size;
            if (given.norms) {
                for (Index i = 0; i < size; ++i) gate[i] += rest[i];
                normalize(gate, saved[RSTD_GATE]);
                const Real *gate_gains = gain(GATE), *gate_biases = gate_gains + size;
#pragma omp simd
                for (Index i = 0; i < size; ++i)
                    out[i] += sigmoid(gate[i] * gate_gains[i] + gate_biases[i]) * (h[i] - out[i]);
            } else {
#pragma omp simd
                for (Index i = 0; i < size; ++i) {
                    gate[i] = sigmoid(gate[i] + rest[i]);
                    out[i] += gate[i] * (h[i] - out[i]);
                }
            }
        }
        if (given.eta != 0) {
            saved[INVERSE_H] = std::min(inverse_norm(dot(out, out, size)), Real(LARGEST_INVERSE_H));
            const Real factor = Real(given.eta) * saved[INVERSE_H];
            for (Index i = 0; i < size; ++i) out[i] *= factor;
        }
        if (given.keep) {
            const Real* __restrict keep = vector(given.keep, t, row);
            for (Index i = 0; i < size; ++i) out[i] += keep[i] * (h[i] - out[i]);
        } else if (given.keep_mean != 0) {
            for (Index i = 0; i < size; ++i) out[i] += Real(given.keep_mean) * (h[i] - out[i]);
        }
    }

    void normalize(Real* x, Real& rstd) const {
        Real mean;
        mean_and_rstd(x, size, mean, rstd, given.epsilon);
        for (Index i = 0; i < size; ++i) x[i] = (x[i] - mean) * rstd;
    }

    // z = e + Rot h, without associative memory
    void candidate_input(const Rotation<Real>& rotation, const Real* __restrict e, const Real* __restrict h,
                         Real along_u, Real along_w, Real* __restrict z) const {
        const Real to_e = 1 + (rotation.c11 * along_u + rotation.c12 * along_w) * rotation.inverse_e;
        const Real to_w = (rotation.c21 * along_u + rotation.c22 * along_w) * rotation.scale;
        const Real* __restrict w = rotation.w;
#pragma omp simd
        for (Index i = 0; i < size; ++i) z[i] = h[i] + to_e * e[i] + to_w * w[i];
    }

    void forward_step(Index t, Index first, Index last, const Real* packed, Real* products) const {
        Real* temporary = products + rows_a_thread() * (products_row + carry_row);
        multiply(last - first, previous(t, first), size, packed, size, recurrent, products, products_row, false);
        for (Index row = first; row < last; ++row) {
            Real* out = vector(given.outputs, t, row);
            if (t < length(row)) {
                Real* product = products + (row - first) * products_row;
                if (starts(t, row)) std::fill_n(product, products_row, Real(0));
                forward_row(t, row, product, temporary);
                if (t == length(row) - 1 && given.final_hidden)
                    std::memcpy(vector(given.final_hidden, 0, row), out, size * sizeof(Real));
            } else {
                std::fill_n(out, size, Real(0));
            }
        }
    }

    // ------------------------------------------------------------ backward

    // Given R = R_t and D, the gradient of R_t without the term dy h^T of y: R becomes R_{t-1}, and D its gradient.
    // Writes R_t^T dy to dh, and the gradients of u, w and C.
    void memory_backward(Real* __restrict memory, Real* __restrict gradient, const Rotation<Real>& rotation,
                         const Real* __restrict dy, const Real* __restrict h, const Real* __restrict u,
                         const Real* __restrict w, Real* __restrict dh, Real* __restrict du, Real* __restrict dw,
                         Real* dc) const {
        const Products along{dot(h, u, size), dot(h, w, size), dot(u, u, size), dot(u, w, size), dot(w, w, size)};
        for (Real* sum : {dh, du, dw}) std::fill_n(sum, carry_row, Real(0));
        dc[0] = dc[1] = dc[2] = dc[3] = 0;
        Index i = 0;
        for (; i + TOGETHER <= size; i += TOGETHER)
            rows_backward<TOGETHER>(memory + i * carry_row, gradient + i * carry_row, rotation, along, dy + i, h, u, w,
                                    dh, du, dw, dc);
        for (; i < size; ++i)
            rows_backward<1>(memory + i * carry_row, gradient + i * carry_row, rotation, along, dy + i, h, u, w, dh, du,
                             dw, dc);
    }

    struct Products {
        Real hu, hw, uu, uw, ww;
    };

    template <int rows>
    void rows_backward(Real* __restrict memory, Real* __restrict gradient, const Rotation<Real>& rotation,
                       const Products& along, const Real* __restrict dy, const Real* __restrict h,
                       const Real* __restrict u, const Real* __restrict w, Real* __restrict dh, Real* __restrict du,
                       Real* __restrict dw, Real* dc) const {
        const Real c11 = rotation.c11, c12 = rotation.c12, c21 = rotation.c21, c22 = rotation.c22;
        Vector<Real> by_u[rows] = {}, by_w[rows] = {}, grad_u[rows] = {}, grad_w[rows] = {};
        for (Index j = 0; j < carry_row; j += LANES<Real>)
            for (int k = 0; k < rows; ++k) {
                const Vector<Real> now = load(memory + k * carry_row + j), slope = load(gradient + k * carry_row + j);
                by_u[k] += now * load(u + j);
                by_w[k] += now * load(w + j);
                grad_u[k] += slope * load(u + j);
                grad_w[k] += slope * load(w + j);
            }
        Real back_u[rows], back_w[rows], slope_u[rows], slope_w[rows], other_u[rows], other_w[rows];
        for (int k = 0; k < rows; ++k) {
            Real ru = sum_of<Real>(by_u[k]), rw = sum_of<Real>(by_w[k]);
            const Real gu = sum_of<Real>(grad_u[k]) + dy[k] * along.hu, gw = sum_of<Real>(grad_w[k]) + dy[k] * along.hw;
            // R_{t-1} = R_t + (R_t E) C^T E^T, and its products with u and w
            back_u[k] = c11 * ru + c12 * rw, back_w[k] = c21 * ru + c22 * rw;
            ru += back_u[k] * along.uu + back_w[k] * along.uw;
            rw += back_u[k] * along.uw + back_w[k] * along.ww;
            dc[0] += ru * gu;
            dc[1] += ru * gw;
            dc[2] += rw * gu;
            dc[3] += rw * gw;
            slope_u[k] = c11 * gu + c12 * gw, slope_w[k] = c21 * gu + c22 * gw;
            other_u[k] = c11 * ru + c21 * rw, other_w[k] = c12 * ru + c22 * rw;
        }
        for (Index j = 0; j < carry_row; j += LANES<Real>) {
            const Vector<Real> at_h = load(h + j), at_u = load(u + j), at_w = load(w + j);
            Vector<Real> sum_h = load(dh + j), sum_u = load(du + j), sum_w = load(dw + j);
            for (int k = 0; k < rows; ++k) {
                Real *row = memory + k * carry_row + j, *slope = gradient + k * carry_row + j;
                // small terms are summed first, so that each of thousands of updates of R and D is rounded once
                const Vector<Real> now = load(row), before = now + (back_u[k] * at_u + back_w[k] * at_w);
                const Vector<Real> push = dy[k] * at_h, pushed = load(slope) + push;
                sum_h += dy[k] * now;
                sum_u += slope_u[k] * before + other_u[k] * pushed;
                sum_w += slope_w[k] * before + other_w[k] * pushed;
                store<Real>(row, before);
                store<Real>(slope, load(slope) + (push + slope_u[k] * at_u + slope_w[k] * at_w));
            }
            store<Real>(dh + j, sum_h), store<Real>(du + j, sum_u), store<Real>(dw + j, sum_w);
        }
    }

    // Given the gradients of u (`du`), w (`dw`) and C (`dc`), writes that of tau to `dtau` and adds that of e to `de`.
    void rotation_backward(const Rotation<Real>& rotation, const Real* __restrict e, const Real* __restrict tau,
                       Real* __restrict du, Real* __restrict dw, const Real* dc, Real along_u, Real along_v,
                       Real* __restrict dtau, Real* __restrict de) const {
        const Real inverse_e = rotation.inverse_e, inverse_tau = rotation.inverse_tau, cosine = rotation.cosine;
        Real dcosine = 0;
        if (rotation.obtuse) {
            // The rotation depends only on the angle and the plane: components of dw and du in the plane do not count.
            const Real* __restrict across = rotation.w;
            const Real dangle = cosine * (dc[2] - dc[1]) - rotation.sine * (dc[0] + dc[3]);
            const Real dw_u = dot(e, dw, size) * inverse_e, dw_w = dot(across, dw, size);
            const Real du_u = dot(e, du, size) * inverse_e, du_w = dot(across, du, size);
            for (Index i = 0; i < size; ++i) {
                const Real u = e[i] * inverse_e, tilt = (dw[i] - dw_u * u - dw_w * across[i]) / rotation.sine;
                if (rotation.opposite) {  // w is constant
                    dw[i] = 0;
                } else {
                    du[i] -= du_u * u + du_w * across[i] + cosine * tilt + dangle * across[i];
                    dw[i] = tilt + dangle * (cosine * across[i] - rotation.sine * u);
                }
            }
            along_u = dot(e, du, size) * inverse_e;
            along_v = dot(tau, dw, size) * inverse_tau;
        } else {
            dcosine = rotation.c11 * rotation.c11 * (dc[0] + dc[1] + dc[2] + dc[3]);
        }
        const Real u_to_e = (along_u + dcosine * cosine) * inverse_e, v_to_e = dcosine * inverse_tau;
        const Real v_to_tau = (along_v + dcosine * cosine) * inverse_tau, u_to_tau = dcosine * inverse_e;
#pragma omp simd
        for (Index i = 0; i < size; ++i) {
            const Real one = e[i], other = tau[i];
            de[i] += inverse_e * (du[i] + v_to_e * other - u_to_e * one);
            dtau[i] = inverse_tau * (dw[i] + u_to_tau * one - v_to_tau * other);
        }
    }

    // `own` is the gradient of the output, or null, and `carry` that of h_t from later steps. On return `carry` is the
    // gradient of h_{t-1} without the path through the product.
    void backward_row(Index t, Index row, const Real* __restrict own, Real* __restrict carry, Real* grad_bias,
                      Real* grad_norms, Real* buffer) const {
        Real* __restrict target = parts(t, row);
        Real* __restrict gate = target + size;
        Real* __restrict embedded = target + recurrent;
        const Real* __restrict h = before(t, row, buffer);
        const Real* saved = scalars(t, row);
        Real* across = buffer;
        Real *__restrict tau = buffer + carry_row, *__restrict e = buffer + 2 * carry_row;
        Real *__restrict candidate = buffer + 3 * carry_row, *__restrict dy = buffer + 4 * carry_row;
        Real *__restrict du = buffer + 5 * carry_row, *__restrict dw = buffer + 6 * carry_row;
        Real *__restrict normalized = buffer + 7 * carry_row;
        Real *__restrict u = buffer + 8 * carry_row, *__restrict w = buffer + 9 * carry_row;

        // the values of the forward pass
        std::memcpy(e, embedded, size * sizeof(Real));
        if (given.norms) {
            const Real *gains = gain(TARGET), *biases = gains + size;
            for (Index i = 0; i < size; ++i) tau[i] = target[i] * gains[i] + biases[i];
        } else {
            std::memcpy(tau, target, size * sizeof(Real));
        }
        const Rotation<Real> rotation =
            make_rotation(e, tau, size, saved[INVERSE_E], saved[INVERSE_TAU], saved[COSINE], across);
        const Real alpha = saved[ALPHA], beta = saved[BETA];
        if (given.memory)
            std::memcpy(candidate, vector(given.candidates, t, row), size * sizeof(Real));
        else
            candidate_input(rotation, e, h, alpha, beta, candidate);
        if (given.norms) {
            const Real *gains = gain(CANDIDATE), *biases = gains + size;
            for (Index i = 0; i < size; ++i) {
                normalized[i] = (candidate[i] - saved[MEAN_Z]) * saved[RSTD_Z];
                candidate[i] = normalized[i] * gains[i] + biases[i];
            }
        }
#pragma omp simd
        for (Index i = 0; i < size; ++i) candidate[i] = Activation::value(candidate[i]);
        const Real* update = gate;
        if (gated && given.norms) {
            const Real *gains = gain(GATE), *biases = gains + size;
            update = u;
#pragma omp simd
            for (Index i = 0; i < size; ++i) u[i] = sigmoid(gate[i] * gains[i] + biases[i]);
        }

        // zoneout and normalization: dy becomes the gradient of h', carry the direct part of that of h_{t-1}
        if (own)
            for (Index i = 0; i < size; ++i) carry[i] += own[i];
        const Real* __restrict keep = given.keep ? vector(given.keep, t, row) : nullptr;
        const Real keep_mean = Real(given.keep_mean);
        if (keep || keep_mean != 0) {
            for (Index i = 0; i < size; ++i) {
                const Real all = carry[i], kept = keep ? keep[i] : keep_mean;
                carry[i] = kept * all;
                dy[i] = all - carry[i];
            }
        } else {
#pragma omp simd
            for (Index i = 0; i < size; ++i) dy[i] = carry[i], carry[i] = 0;
        }
        if (given.eta != 0) {
            Real along = 0;
            for (Index i = 0; i < size; ++i) {
                w[i] = (gated ? candidate[i] + update[i] * (h[i] - candidate[i]) : candidate[i]) * saved[INVERSE_H];
                along += w[i] * dy[i];
            }
            if (saved[INVERSE_H] >= Real(LARGEST_INVERSE_H)) along = 0;  // multiplied by a constant
            const Real factor = Real(given.eta) * saved[INVERSE_H];
            for (Index i = 0; i < size; ++i) dy[i] = factor * (dy[i] - along * w[i]);
        }
        if (gated) {
#pragma omp simd
            for (Index i = 0; i < size; ++i) {
                const Real g = update[i], d = dy[i];
                carry[i] += g * d;
                dy[i] = d - g * d;
                w[i] = d * (h[i] - candidate[i]) * g * (1 - g);
            }
            if (given.norms)
                norm_backward(w, gate, gain(GATE), saved[RSTD_GATE], size, grad_norms + 2 * GATE * size,
                              grad_norms + (2 * GATE + 1) * size);
            Real* __restrict sum = grad_bias + size;
#pragma omp simd
            for (Index i = 0; i < size; ++i) gate[i] = w[i], sum[i] += w[i];
        }
#pragma omp simd
        for (Index i = 0; i < size; ++i) dy[i] *= Activation::slope(candidate[i]);
        if (given.norms)
            norm_backward(dy, normalized, gain(CANDIDATE), saved[RSTD_Z], size, grad_norms + 2 * CANDIDATE * size,
                          grad_norms + (2 * CANDIDATE + 1) * size);

        // the rotation; dy is now the gradient of e + R h
        Real along_u, along_v, dc[4];
        std::memcpy(embedded, dy, size * sizeof(Real));
        if (given.memory) {
            Real* memory = matrix(given.memory, row);
            if (Real* copy = checkpoint(t, row)) std::memcpy(memory, copy, size * carry_row * sizeof(Real));
            widened(e, rotation.inverse_e, u);
            widened(rotation.w, rotation.scale, w);
            Real* dh = normalized;
            memory_backward(memory, matrix(given.grad_memory, row), rotation, dy, widened(h, 1, candidate), u, w, dh, du,
                            dw, dc);
            for (Index i = 0; i < size; ++i) carry[i] += dh[i];
            along_u = dot(u, du, size);
            along_v = dot(w, dw, size);
            if (starts(t, row)) {  // from the identity back to the memory that it replaced, which has no gradient here
                std::memcpy(memory, replaced(t, row), size * carry_row * sizeof(Real));
                std::fill_n(matrix(given.grad_memory, row), size * carry_row, Real(0));
            }
        } else {
            Real p = 0, q = 0;
            const Real* __restrict other = rotation.w;
#pragma omp simd reduction(+ : p, q)
            for (Index i = 0; i < size; ++i) p += e[i] * dy[i], q += other[i] * dy[i];
            p *= rotation.inverse_e;
            q *= rotation.scale;
            const Real a = rotation.c11 * alpha + rotation.c12 * beta, b = rotation.c21 * alpha + rotation.c22 * beta;
            const Real dalpha = rotation.c11 * p + rotation.c21 * q, dbeta = rotation.c12 * p + rotation.c22 * q;
            dc[0] = alpha * p, dc[1] = beta * p, dc[2] = alpha * q, dc[3] = beta * q;
            along_u = a * p + dalpha * alpha;
            along_v = b * q + dbeta * beta;
            const Real to_e = dalpha * rotation.inverse_e, to_w = dbeta * rotation.scale;
#pragma omp simd
            for (Index i = 0; i < size; ++i) {
                carry[i] += dy[i] + to_e * e[i] + to_w * other[i];
                du[i] = a * dy[i] + dalpha * h[i];
                dw[i] = b * dy[i] + dbeta * h[i];
            }
        }
        rotation_backward(rotation, e, tau, du, dw, dc, along_u, along_v, dy, embedded);
        if (given.norms)
            norm_backward(dy, target, gain(TARGET), saved[RSTD_TARGET], size, grad_norms + 2 * TARGET * size,
                          grad_norms + (2 * TARGET + 1) * size);
        Real *__restrict sum_target = grad_bias, *__restrict sum_embedded = grad_bias + recurrent;
#pragma omp simd
        for (Index i = 0; i < size; ++i) {
            target[i] = dy[i];
            sum_target[i] += dy[i];
            sum_embedded[i] += embedded[i];
        }
    }

    // A sum over time is stored as two partial sums, because long sums lose digits: first that of all but the last few
    // steps, then that of the last few steps.
    static constexpr Index RECENT = 8;

    Real* recent(void* sums, Index row, Index count) const { return at(sums, (row / BLOCK * 2 + 1) * count); }

    static void flush(Real* sum, Index count) {
        for (Index i = 0; i < count; ++i) sum[i - count] += sum[i];
        std::fill_n(sum, count, Real(0));
    }

    // A thread's buffer starts with the gradient that is passed from step to step.
    void begin_backward(Index first, Index last, Real* buffer) const {
        std::fill_n(buffer, (last - first) * carry_row, Real(0));
    }

    // `outer`: gradients of the outputs with row stride `outer_row`, or null.
    void backward_step(Index t, Index first, Index last, const Real* outer, Index outer_row, const Real* packed,
                       Real* buffer) const {
        Real* carry = buffer;
        Real* temporary = buffer + rows_a_thread() * (products_row + carry_row);
        for (Index row = first; row < last; ++row) {
            Real* own = carry + (row - first) * carry_row;
            if (t >= length(row)) {
                std::fill_n(parts(t, row), parts_count * size, Real(0));
                continue;
            }
            if (t == length(row) - 1 && given.grad_h0)
                std::memcpy(own, vector(given.grad_h0, 0, row), size * sizeof(Real));
            backward_row(t, row, outer ? outer + (row - first) * outer_row : nullptr, own,
                         recent(given.grad_bias, row, parts_count * size), recent(given.grad_norms, row, 6 * size),
                         temporary);
        }
        if (t % RECENT == 0)
            for (Index row = first; row < last; row += BLOCK) {
                flush(recent(given.grad_bias, row, parts_count * size), parts_count * size);
                if (given.norms) flush(recent(given.grad_norms, row, 6 * size), 6 * size);
            }
        multiply(last - first, parts(t, first), parts_count * size, packed, recurrent, size, carry, carry_row, true);
        for (Index row = first; row < last; ++row)
            if (t < length(row) && starts(t, row)) std::fill_n(carry + (row - first) * carry_row, size, Real(0));
    }

    void end_backward(Index first, Index last, const Real* carry) const {
        for (Index row = first; row < last; ++row)
            std::memcpy(vector(given.grad_h0, 0, row), carry + (row - first) * carry_row, size * sizeof(Real));
    }

    void pack_weight(bool backward, Real* packed) const {
        if (backward)
            pack(at(given.weight), size, 1, recurrent, size, packed);
        else
            pack(at(given.weight), 1, size, size, recurrent, packed);
    }
};

template <class Real, class Work>
auto with_activation(const Arguments& given, Work work) {
    switch (given.activation) {
        case 0: return work(Scan<Real, Relu>(given));
        case 1: return work(Scan<Real, Tanh>(given));
        case 2: return work(Scan<Real, Sigmoid>(given));
        default: return work(Scan<Real, Softsign>(given));
    }
}

}  // namespace
}  // namespace rum
