// Recurrences whose step is one matrix product and functions of a row; see `gyral.ops.gated`.
//
// Backward overwrites saved values with gradients. A cell is a class with `forward` and `backward` for one row and one
// step. Widths: H of the hidden vector, C of the cell state (0: none), G of the parts, R <= G of the product, which is
// added to the first columns of the parts, and K of the columns of the product that are kept separately.

#pragma once

#include "gated/rotations.hpp"
#include "native/run.hpp"

namespace gated {

// Pointers are to Real unless noted otherwise, and null for absent tensors.
struct Arguments {
    Index steps, batch, hidden_size, cell_state_size, parts_size, weight_rows, kept_size, extra_size, units, chunk, kind,
        lag, layers, threads;
    double keep_mean;             // zoneout in evaluation; 0: none
    double keep_cell_state_mean;  // zoneout of the cell state, only for cells whose backward does not read that vector
    double epsilon;               // of layer normalization
    void* parts;                  // (T, B, G); after forward: values for backward; after backward: the gradient
    void* w_hh;                   // (R, H); with `partner`: own and other (2, L, H) of Rotations
    void* extra;                  // further parameters of the cell
    void* h0;                     // (B, H) before the first step
    void* c0;                     // (B, C)
    void* keep;                   // (T, B, H)
    void* keep_cell_state;        // (T, B, C)
    void* drop;                   // (B, H): factors of the hidden vector in the product
    void* lengths;                // Index (B)
    void* starts;                 // bool (T, B): whether a row is reset before step t, to the two below
    void* fresh;                  // (H), given with `starts`
    void* fresh_cell_state;       // (C), likewise
    void* partner;                // Index (L, N), or null for a dense weight; only if the parts are H wide
    void* outputs;                // (T, B, H)
    void* cell_states;            // (T, B, C)
    void* past;                   // (T, B, H): h before step t is row t - lag, or `h0`; null stands for outputs
    void* past_cell_states;       // (T, B, C), likewise; null stands for cell_states
    void* kept;                   // (T, B, K); after backward: the gradient of that part of the product
    void* final_hidden;           // (B, H)
    void* final_cell_state;       // (B, C)
    void* workspace;              // gated_workspace(...) elements
    void* grad_outputs;           // (T, B, H)
    void* grad_h0;                // (B, H): gradient of the final state, on return that of the initial state
    void* grad_c0;                // (B, C), likewise
    void* grad_extra;             // (blocks, extra_size) zeros: one partial sum per block of rows
    void* grad_fresh;             // (blocks, H) zeros, likewise, or null
    void* grad_w_hh;              // (blocks, 2, L, H) zeros, likewise, given with `partner`
};

namespace {

// The values of one row at one step; `hidden` and `cell_state` are those before the step.
template <class Real> struct Row {
    Index units, chunk;
    Real* __restrict parts;
    Real* __restrict kept;
    const Real* __restrict extra;
    const Real* __restrict hidden;
    const Real* __restrict cell_state;
    Real epsilon;
};

template <class Real> inline Real modrelu(Real z, Real bias) {
    const Real size = std::fabs(z) + bias;
    const Real positive = size < 0 ? Real(0) : size;
    return z > 0 ? positive : z < 0 ? -positive : z;  // a NaN stays a NaN
}

template <class Real> inline Real modrelu_slope(Real z, Real bias) {
    return std::fabs(z) + bias > 0 && z != 0 ? Real(1) : Real(0);
}

// h = modReLU(z; b), z = parts + product
struct RealModRelu {
    template <class Real>
    static void forward(const Row<Real>& row, const Real* __restrict product, Real* __restrict h, Real*) {
        Real* __restrict z = row.parts;
        const Real* __restrict bias = row.extra;
#pragma omp simd
        for (Index i = 0; i < row.units; ++i) {
            z[i] += product[i];
            h[i] = modrelu(z[i], bias[i]);
        }
    }

    // `g` is the gradient of the new hidden vector, on return that of the old one without the path through the product;
    // `gc` likewise for the cell state. `scratch` holds 2 G elements.
    template <class Real>
    static void backward(const Row<Real>& row, const Real*, Real* __restrict g, Real*, Real* __restrict grad_extra,
                         Real*) {
        Real* __restrict z = row.parts;
        const Real* __restrict bias = row.extra;
#pragma omp simd
        for (Index i = 0; i < row.units; ++i) {
            const Real active = g[i] * modrelu_slope(z[i], bias[i]);
            grad_extra[i] += z[i] > 0 ? active : -active;
            z[i] = active;
            g[i] = 0;
        }
    }
};

// h = ReLU(|z| + b) z/|z|, real parts in the first half of a row, imaginary parts in the second
struct ComplexModRelu {
    // below this size 1/|z|^2 may overflow, and z does not change
    template <class Real> static Real smallest() { return std::pow(std::numeric_limits<Real>::min(), Real(0.4)); }

    template <class Real>
    static void forward(const Row<Real>& row, const Real* __restrict product, Real* __restrict h, Real*) {
        const Index n = row.units;
        const Real least = smallest<Real>();
        Real *__restrict re = row.parts, *__restrict im = row.parts + n;
        const Real* __restrict bias = row.extra;
#pragma omp simd
        for (Index i = 0; i < n; ++i) {
            const Real x = re[i] + product[i], y = im[i] + product[n + i];
            re[i] = x;
            im[i] = y;
            const Real size = std::sqrt(x * x + y * y);
            Real scale = size > least ? 1 + bias[i] / size : Real(1);
            scale = scale < 0 ? Real(0) : scale;
            h[i] = x * scale;
            h[n + i] = y * scale;
        }
    }

    template <class Real>
    static void backward(const Row<Real>& row, const Real*, Real* __restrict g, Real*, Real* __restrict grad_extra,
                         Real*) {
        const Index n = row.units;
        const Real least = smallest<Real>();
        Real *__restrict re = row.parts, *__restrict im = row.parts + n;
        const Real* __restrict bias = row.extra;
#pragma omp simd
        for (Index i = 0; i < n; ++i) {
            const Real x = re[i], y = im[i], gx = g[i], gy = g[n + i];
            const Real size = std::sqrt(x * x + y * y);
            const Real inverse = size > least ? 1 / size : Real(0);
            const Real scale = 1 + bias[i] * inverse;
            const Real active = scale > 0 ? Real(1) : Real(0);
            const Real u = x * inverse, v = y * inverse, along = (gx * u + gy * v) * active;
            grad_extra[i] += along;
            const Real across = along * bias[i] * inverse;
            re[i] = active * scale * gx - across * u;
            im[i] = active * scale * gy - across * v;
            g[i] = g[n + i] = 0;
        }
    }
};

// r, g = sigmoid; c = modReLU(r * (U h) + input, b); h' = g h + (1 - g) c. Kept: U h.
struct Goru {
    template <class Real>
    static void forward(const Row<Real>& row, const Real* __restrict product, Real* __restrict h, Real*) {
        const Index n = row.units;
        Real *__restrict reset = row.parts, *__restrict update = row.parts + n, *__restrict z = row.parts + 2 * n;
        const Real *__restrict bias = row.extra, *__restrict old = row.hidden;
        Real* __restrict rotated = row.kept;
#pragma omp simd
        for (Index i = 0; i < n; ++i) {
            reset[i] = sigmoid(reset[i] + product[i]);
            update[i] = sigmoid(update[i] + product[n + i]);
            rotated[i] = product[2 * n + i];
            z[i] += reset[i] * rotated[i];
            h[i] = modrelu(z[i], bias[i]);
            h[i] += update[i] * (old[i] - h[i]);
        }
    }

    template <class Real>
    static void backward(const Row<Real>& row, const Real*, Real* __restrict g, Real*, Real* __restrict grad_extra,
                         Real*) {
        const Index n = row.units;
        Real *__restrict reset = row.parts, *__restrict update = row.parts + n, *__restrict z = row.parts + 2 * n;
        const Real *__restrict bias = row.extra, *__restrict old = row.hidden;
        Real* __restrict rotated = row.kept;
#pragma omp simd
        for (Index i = 0; i < n; ++i) {
            const Real c = modrelu(z[i], bias[i]), r = reset[i], u = update[i];
            const Real gc = g[i] * (1 - u);
            const Real active = gc * modrelu_slope(z[i], bias[i]);
            grad_extra[i] += z[i] > 0 ? active : -active;
            update[i] = g[i] * (old[i] - c) * u * (1 - u);
            reset[i] = active * rotated[i] * r * (1 - r);
            z[i] = active;
            rotated[i] = active * r;
            g[i] *= u;
        }
    }
};

// The same with layer normalization of r and g before their sigmoids. `extra`: biases of modReLU (N), gains (2N) and
// biases (2N) of the gates. After forward: the gates before normalization.
struct NormalizedGoru {
    template <class Real>
    static void forward(const Row<Real>& row, const Real* __restrict product, Real* __restrict h, Real*) {
        const Index n = row.units;
        Real *__restrict gates = row.parts, *__restrict z = gates + 2 * n;
        const Real *__restrict bias = row.extra, *__restrict gain = bias + n, *__restrict gate_bias = gain + 2 * n;
        const Real* __restrict old = row.hidden;
        Real* __restrict rotated = row.kept;
        Real mean[2], rstd[2];
        for (Index i = 0; i < 2 * n; ++i) gates[i] += product[i];
        mean_and_rstd_of<2>(gates, n, mean, rstd, row.epsilon);
        const auto normal = [=](Index gate, Index i) {
            return (gates[gate * n + i] - mean[gate]) * rstd[gate] * gain[gate * n + i] + gate_bias[gate * n + i];
        };
#pragma omp simd
        for (Index i = 0; i < n; ++i) {
            rotated[i] = product[2 * n + i];
            z[i] += sigmoid(normal(0, i)) * rotated[i];
            h[i] = modrelu(z[i], bias[i]);
            h[i] += sigmoid(normal(1, i)) * (old[i] - h[i]);
        }
    }

    template <class Real>
    static void backward(const Row<Real>& row, const Real*, Real* __restrict g, Real*, Real* __restrict grad_extra,
                         Real* __restrict scratch) {
        const Index n = row.units;
        Real *__restrict gates = row.parts, *__restrict z = gates + 2 * n;
        const Real *__restrict bias = row.extra, *__restrict gain = bias + n, *__restrict old = row.hidden;
        Real *__restrict reset = scratch, *__restrict update = scratch + n, *__restrict rotated = row.kept;
        Real mean[2], rstd[2];
        mean_and_rstd_of<2>(gates, n, mean, rstd, row.epsilon);
        for (Index gate = 0; gate < 2; ++gate)
            for (Index i = gate * n; i < (gate + 1) * n; ++i) {
                gates[i] = (gates[i] - mean[gate]) * rstd[gate];
                scratch[i] = gates[i] * gain[i] + gain[2 * n + i];
            }
#pragma omp simd
        for (Index i = 0; i < n; ++i) {
            const Real c = modrelu(z[i], bias[i]), r = sigmoid(reset[i]), u = sigmoid(update[i]);
            const Real gc = g[i] * (1 - u);
            const Real active = gc * modrelu_slope(z[i], bias[i]);
            grad_extra[i] += z[i] > 0 ? active : -active;
            update[i] = g[i] * (old[i] - c) * u * (1 - u);
            reset[i] = active * rotated[i] * r * (1 - r);
            z[i] = active;
            rotated[i] = active * r;
            g[i] *= u;
        }
        for (Index gate = 0; gate < 2; ++gate)
            norm_backward(scratch + gate * n, gates + gate * n, gain + gate * n, rstd[gate], n,
                          grad_extra + (1 + gate) * n, grad_extra + (3 + gate) * n);
        std::memcpy(gates, scratch, 2 * n * sizeof(Real));
    }
};

// r, z = sigmoid; c = tanh(input + r * (W_hn h + b)); h' = z h + (1 - z) c. Kept: W_hn h + b. `extra`: b, or null. After
// forward: r, z and c.
struct Gru {
    template <class Real>
    static void forward(const Row<Real>& row, const Real* __restrict product, Real* __restrict h, Real*) {
        const Index n = row.units;
        Real *__restrict reset = row.parts, *__restrict update = reset + n, *__restrict candidate = update + n;
        const Real *__restrict bias = row.extra, *__restrict old = row.hidden;
        Real* __restrict kept = row.kept;
        std::memcpy(kept, product + 2 * n, n * sizeof(Real));
        if (bias)
            for (Index i = 0; i < n; ++i) kept[i] += bias[i];
#pragma omp simd
        for (Index i = 0; i < n; ++i) {
            reset[i] = sigmoid(reset[i] + product[i]);
            update[i] = sigmoid(update[i] + product[n + i]);
            candidate[i] = hyperbolic_tangent(candidate[i] + reset[i] * kept[i]);
            h[i] = candidate[i] + update[i] * (old[i] - candidate[i]);
        }
    }

    template <class Real>
    static void backward(const Row<Real>& row, const Real*, Real* __restrict g, Real*, Real* __restrict grad_extra,
                         Real*) {
        const Index n = row.units;
        Real *__restrict reset = row.parts, *__restrict update = reset + n, *__restrict candidate = update + n;
        const Real* __restrict old = row.hidden;
        Real* __restrict kept = row.kept;
#pragma omp simd
        for (Index i = 0; i < n; ++i) {
            const Real r = reset[i], z = update[i], c = candidate[i];
            const Real slope = g[i] * (1 - z) * (1 - c * c);
            update[i] = g[i] * (old[i] - c) * z * (1 - z);
            reset[i] = slope * kept[i] * r * (1 - r);
            candidate[i] = slope;
            kept[i] = slope * r;
            g[i] *= z;
        }
        if (row.extra)
            for (Index i = 0; i < n; ++i) grad_extra[i] += kept[i];
    }
};

// h = f(z), z = parts + product. After forward: h, because the output may include zoneout.
template <class Activation> struct Elman {
    template <class Real>
    static void forward(const Row<Real>& row, const Real* __restrict product, Real* __restrict h, Real*) {
        Real* __restrict z = row.parts;
#pragma omp simd
        for (Index i = 0; i < row.units; ++i) h[i] = z[i] = Activation::value(z[i] + product[i]);
    }

    template <class Real>
    static void backward(const Row<Real>& row, const Real*, Real* __restrict g, Real*, Real*, Real*) {
        Real* __restrict z = row.parts;
#pragma omp simd
        for (Index i = 0; i < row.units; ++i) {
            z[i] = g[i] * Activation::slope(z[i]);
            g[i] = 0;
        }
    }
};

// Parts: D master forget, D master input, then f, i, o, candidate of N units each. After forward: the softmaxes p and q
// of the master gates, and the values of the gates.
struct OnLstm {
    template <class Real> static void softmax(Real* x, Index size) {
        Real largest = x[0], sum = 0;
        for (Index i = 1; i < size; ++i) largest = x[i] > largest ? x[i] : largest;
        for (Index i = 0; i < size; ++i) sum += x[i] = exponential(x[i] - largest);
        for (Index i = 0; i < size; ++i) x[i] /= sum;
    }

    template <class Real>
    static void forward(const Row<Real>& row, const Real* __restrict product, Real* __restrict h,
                        Real* __restrict cell_state) {
        const Index n = row.units, d = (n + row.chunk - 1) / row.chunk, gates = 2 * d;
        Real* __restrict parts = row.parts;
        for (Index i = 0; i < gates; ++i) parts[i] += product[i];
        softmax(parts, d);
        softmax(parts + d, d);
        Real *__restrict forget = parts + gates, *__restrict write = forget + n, *__restrict out = write + n,
             *__restrict candidate = out + n;
        const Real *__restrict more = product + gates, *__restrict old = row.cell_state;
        Real master = 0, past = 0;
        for (Index k = 0; k < d; ++k) {
            master += parts[k];
            past += parts[d + k];
            const Real both = master * (1 - past), kept = master - both, fresh = 1 - past - both;
            const Index last = std::min(n, (k + 1) * row.chunk);
#pragma omp simd
            for (Index i = k * row.chunk; i < last; ++i) {
                forget[i] = sigmoid(forget[i] + more[i]);
                write[i] = sigmoid(write[i] + more[n + i]);
                out[i] = sigmoid(out[i] + more[2 * n + i]);
                candidate[i] = hyperbolic_tangent(candidate[i] + more[3 * n + i]);
                cell_state[i] = (forget[i] * both + kept) * old[i] + (write[i] * both + fresh) * candidate[i];
                h[i] = out[i] * hyperbolic_tangent(cell_state[i]);
            }
        }
    }

    template <class Real>
    static void backward(const Row<Real>& row, const Real* __restrict cell_state, Real* __restrict g,
                         Real* __restrict gc,
                         Real*, Real* __restrict scratch) {
        const Index n = row.units, d = (n + row.chunk - 1) / row.chunk, gates = 2 * d;
        Real* __restrict parts = row.parts;
        Real *__restrict forget = parts + gates, *__restrict write = forget + n, *__restrict out = write + n,
             *__restrict candidate = out + n;
        const Real* __restrict old = row.cell_state;
        Real master = 0, past = 0;
        for (Index k = 0; k < d; ++k) {
            master += parts[k];
            past += parts[d + k];
            const Real both = master * (1 - past), kept = master - both, fresh = 1 - past - both;
            const Index last = std::min(n, (k + 1) * row.chunk);
            Real grad_both = 0, grad_kept = 0, grad_fresh = 0;
#pragma omp simd reduction(+ : grad_both, grad_kept, grad_fresh)
            for (Index i = k * row.chunk; i < last; ++i) {
                const Real f = forget[i], w = write[i], o = out[i], c = candidate[i];
                const Real squashed = hyperbolic_tangent(cell_state[i]);
                const Real slope = gc[i] + g[i] * o * (1 - squashed * squashed);
                out[i] = g[i] * squashed * o * (1 - o);
                const Real to_forget = slope * old[i], to_write = slope * c;
                grad_both += to_forget * f + to_write * w;
                grad_kept += to_forget;
                grad_fresh += to_write;
                forget[i] = to_forget * both * f * (1 - f);
                write[i] = to_write * both * w * (1 - w);
                candidate[i] = slope * (w * both + fresh) * (1 - c * c);
                gc[i] = slope * (f * both + kept);
                g[i] = 0;
            }
            // both = m (1 - q), kept = m - both, fresh = 1 - q - both
            const Real direct = grad_both - grad_kept - grad_fresh;
            scratch[k] = direct * (1 - past) + grad_kept;
            scratch[d + k] = -direct * master - grad_fresh;
        }
        for (Real *probability = parts, *slope = scratch; probability < parts + gates; probability += d, slope += d) {
            Real along = 0;
            for (Index k = d - 2; k >= 0; --k) slope[k] += slope[k + 1];  // gradient of a cumulative sum
            for (Index k = 0; k < d; ++k) along += probability[k] * slope[k];
            for (Index k = 0; k < d; ++k) probability[k] *= slope[k] - along;
        }
    }
};

// Parts: gates i, f, g, o of N units each: c = f c' + i g, h = o tanh(c). After forward: values of the gates.
// Backward recomputes c, because the saved c may include zoneout.
struct Lstm {
    template <class Real>
    static void forward(const Row<Real>& row, const Real* __restrict product, Real* __restrict h,
                        Real* __restrict cell_state) {
        const Index n = row.units;
        Real *__restrict write = row.parts, *__restrict forget = write + n, *__restrict candidate = forget + n,
             *__restrict out = candidate + n;
        const Real* __restrict old = row.cell_state;
#pragma omp simd
        for (Index i = 0; i < n; ++i) {
            write[i] = sigmoid(write[i] + product[i]);
            forget[i] = sigmoid(forget[i] + product[n + i]);
            candidate[i] = hyperbolic_tangent(candidate[i] + product[2 * n + i]);
            out[i] = sigmoid(out[i] + product[3 * n + i]);
            cell_state[i] = forget[i] * old[i] + write[i] * candidate[i];
            h[i] = out[i] * hyperbolic_tangent(cell_state[i]);
        }
    }

    template <class Real>
    static void backward(const Row<Real>& row, const Real*, Real* __restrict g, Real* __restrict gc, Real*, Real*) {
        const Index n = row.units;
        Real *__restrict write = row.parts, *__restrict forget = write + n, *__restrict candidate = forget + n,
             *__restrict out = candidate + n;
        const Real* __restrict old = row.cell_state;
#pragma omp simd
        for (Index i = 0; i < n; ++i) {
            const Real w = write[i], f = forget[i], c = candidate[i], o = out[i];
            const Real squashed = hyperbolic_tangent(f * old[i] + w * c);
            const Real slope = gc[i] + g[i] * o * (1 - squashed * squashed);
            write[i] = slope * c * w * (1 - w);
            forget[i] = slope * old[i] * f * (1 - f);
            candidate[i] = slope * w * (1 - c * c);
            out[i] = g[i] * squashed * o * (1 - o);
            gc[i] = slope * f;
            g[i] = 0;
        }
    }
};

// The same with layer normalization of each gate before its activation, and of c before the tanh of h. `extra`: gains
// (4N) and biases (4N) of the gates, gain (N) and bias (N) of c. After forward: the gates before normalization.
struct NormalizedLstm {
    template <class Real>
    static void forward(const Row<Real>& row, const Real* __restrict product, Real* __restrict h,
                        Real* __restrict cell_state) {
        const Index n = row.units;
        Real* __restrict z = row.parts;
        const Real *__restrict gain = row.extra, *__restrict bias = gain + 4 * n, *__restrict old = row.cell_state;
        Real mean[5], rstd[5];
        for (Index gate = 0; gate < 4; ++gate) add(product + gate * n, n, z + gate * n);
        mean_and_rstd_of<4>(z, n, mean, rstd, row.epsilon);
        for_registers<Real>(n, [&](Index i, Index count) {
            const auto normal = [&](Index gate) {
                const Index j = gate * n + i;
                return (load_first(z + j, count) - mean[gate]) * rstd[gate] * load_first(gain + j, count) +
                       load_first(bias + j, count);
            };
            const Vector<Real> kept = sigmoids<Real>(normal(1)) * load_first(old + i, count);
            const Vector<Real> written = sigmoids<Real>(normal(0)) * hyperbolic_tangents<Real>(normal(2));
            store_first<Real>(cell_state + i, count, kept + written);
            store_first<Real>(h + i, count, sigmoids<Real>(normal(3)));
        });
        mean_and_rstd(cell_state, n, mean[4], rstd[4], row.epsilon);
        gain += 8 * n, bias = gain + n;
        for_registers<Real>(n, [&](Index i, Index count) {
            const Vector<Real> normal = (load_first(cell_state + i, count) - mean[4]) * rstd[4];
            const Vector<Real> scaled = normal * load_first(gain + i, count) + load_first(bias + i, count);
            store_first<Real>(h + i, count, load_first(h + i, count) * hyperbolic_tangents<Real>(scaled));
        });
    }

    template <class Real>
    static void backward(const Row<Real>& row, const Real*, Real* __restrict g, Real* __restrict gc,
                         Real* __restrict grad_extra, Real* __restrict scratch) {
        const Index n = row.units;
        Real* __restrict z = row.parts;
        const Real *__restrict gain = row.extra, *__restrict bias = gain + 4 * n, *__restrict old = row.cell_state;
        Real *__restrict write = scratch, *__restrict forget = write + n, *__restrict candidate = forget + n,
             *__restrict out = candidate + n, *__restrict cell_state = out + n, *__restrict slope = cell_state + n;
        Real mean[5], rstd[5];
        mean_and_rstd_of<4>(z, n, mean, rstd, row.epsilon);
        for_registers<Real>(n, [&](Index i, Index count) {
            Vector<Real> gates[4];
            for (Index gate = 0; gate < 4; ++gate) {
                const Index j = gate * n + i;
                const Vector<Real> normal = (load_first(z + j, count) - mean[gate]) * rstd[gate];
                store_first<Real>(z + j, count, normal);
                gates[gate] = normal * load_first(gain + j, count) + load_first(bias + j, count);
                gates[gate] = gate == 2 ? hyperbolic_tangents<Real>(gates[gate]) : sigmoids<Real>(gates[gate]);
                store_first<Real>(scratch + j, count, gates[gate]);
            }
            store_first<Real>(cell_state + i, count, gates[1] * load_first(old + i, count) + gates[0] * gates[2]);
        });
        mean_and_rstd(cell_state, n, mean[4], rstd[4], row.epsilon);
        const Real *cell_gain = gain + 8 * n, *cell_bias = cell_gain + n;
        for_registers<Real>(n, [&](Index i, Index count) {
            const Vector<Real> normal = (load_first(cell_state + i, count) - mean[4]) * rstd[4];
            store_first<Real>(cell_state + i, count, normal);
            const Vector<Real> squashed = hyperbolic_tangents<Real>(normal * load_first(cell_gain + i, count) +
                                                                    load_first(cell_bias + i, count));
            const Vector<Real> o = load_first(out + i, count), outer = load_first(g + i, count) * o;
            store_first<Real>(slope + i, count, outer * (1 - squashed * squashed));
            store_first<Real>(out + i, count, outer * squashed * (1 - o));
        });
        norm_backward(slope, cell_state, cell_gain, rstd[4], n, grad_extra + 8 * n, grad_extra + 9 * n);
#pragma omp simd
        for (Index i = 0; i < n; ++i) {
            const Real w = write[i], f = forget[i], c = candidate[i], all = gc[i] + slope[i];
            write[i] = all * c * w * (1 - w);
            forget[i] = all * old[i] * f * (1 - f);
            candidate[i] = all * w * (1 - c * c);
            gc[i] = all * f;
            g[i] = 0;
        }
        for (Index gate = 0; gate < 4; ++gate)
            norm_backward(scratch + gate * n, z + gate * n, gain + gate * n, rstd[gate], n, grad_extra + gate * n,
                          grad_extra + (4 + gate) * n);
        std::memcpy(z, scratch, 4 * n * sizeof(Real));
    }
};

template <class Real, class Cell>
struct Scan {
    const Arguments& given;
    const Index steps, batch, hidden, cell_state, parts, product, kept;
    const Index products_row, carry_row;
    const Rotations<Real> rotations;
    const Index temporaries;  // elements of workspace per thread

    explicit Scan(const Arguments& a)
        : given(a), steps(a.steps), batch(a.batch), hidden(a.hidden_size), cell_state(a.cell_state_size),
          parts(a.parts_size), product(a.weight_rows), kept(a.kept_size), products_row(padded<Real>(product)),
          carry_row(padded<Real>(hidden)),
          rotations{a.layers, a.units, hidden, at(a.w_hh), at(a.w_hh, a.layers * hidden),
                    static_cast<const Index*>(a.partner)},
          temporaries(rows_a_thread() * (products_row + 2 * carry_row + cell_state) + 2 * parts + 2 * hidden +
                      cell_state + rotations.space()) {}

    Real* at(void* base, Index offset = 0) const { return base ? static_cast<Real*>(base) + offset : nullptr; }
    Real* vector(void* base, Index width, Index t, Index row) const { return at(base, (t * batch + row) * width); }
    const Real* previous(void* first, void* past, void* own, Index width, Index t, Index row) const {
        return t < given.lag ? vector(first, width, 0, row) : vector(past ? past : own, width, t - given.lag, row);
    }
    Index length(Index row) const { return given.lengths ? static_cast<Index*>(given.lengths)[row] : steps; }
    bool begins(Index t, Index row) const {
        return given.starts && static_cast<const bool*>(given.starts)[t * batch + row];
    }
    bool any_begins(Index t, Index first, Index last) const {
        return given.starts && std::memchr(static_cast<const bool*>(given.starts) + t * batch + first, 1, last - first);
    }
    // The end of the rows that take part in a step: products of the rows beyond are not needed.
    Index end_of_active(Index t, Index first, Index last) const {
        while (last > first && t >= length(last - 1)) --last;
        return last;
    }

    Index blocks() const { return (batch + BLOCK - 1) / BLOCK; }
    Index rows_a_thread() const { return (blocks() + given.threads - 1) / given.threads * BLOCK; }
    bool is_rotated() const { return given.partner; }
    Index weight_bytes() const { return is_rotated() ? 0 : product * hidden * Index(sizeof(Real)); }
    Index rows_together() const { return rows_at_once(weight_bytes(), rows_a_thread()); }
    Index outputs_width() const { return hidden; }
    Index parts_width() const { return parts; }
    Index product_width() const { return product; }
    Index kept_width() const { return kept; }
    Index packed_size() const {
        if (is_rotated()) return given.layers * hidden;
        return std::max(product * padded<Real>(hidden), hidden * padded<Real>(product));
    }
    // The end of a thread's buffer: a hidden vector and the memory of `rotations`.
    Real* rotation_buffer(Real* buffer) const { return buffer + temporaries - rotations.space() - hidden; }

    Row<Real> row_at(Index t, Index row) const {
        const bool fresh = begins(t, row);
        return {given.units,
                given.chunk,
                vector(given.parts, parts, t, row),
                vector(given.kept, kept, t, row),
                at(given.extra),
                fresh ? at(given.fresh) : previous(given.h0, given.past, given.outputs, hidden, t, row),
                fresh ? at(given.fresh_cell_state)
                      : previous(given.c0, given.past_cell_states, given.cell_states, cell_state, t, row),
                Real(given.epsilon)};
    }

    // The hidden vectors that the products of a step read: a copy in `buffer` where they are not those of the last step.
    const Real* factors(Index t, Index first, Index last, Real* buffer) const {
        const Real* old = previous(given.h0, given.past, given.outputs, hidden, t, first);
        const bool some_begin = any_begins(t, first, last);
        if (!some_begin && !given.drop) return old;
        std::memcpy(buffer, old, (last - first) * hidden * sizeof(Real));
        for (Index row = first; some_begin && row < last; ++row)
            if (begins(t, row)) std::memcpy(buffer + (row - first) * hidden, given.fresh, hidden * sizeof(Real));
        if (given.drop) {
            const Real* __restrict drop = vector(given.drop, hidden, 0, first);
            for (Index i = 0; i < (last - first) * hidden; ++i) buffer[i] *= drop[i];
        }
        return buffer;
    }

    // The same for one row.
    const Real* read(Index t, Index row, Real* buffer) const { return factors(t, row, row + 1, buffer); }

    void pack_weight(bool backward, Real* packed) const {
        if (is_rotated()) {
            if (backward) rotations.pack(packed);
            return;
        }
        const Real* weight = at(given.w_hh);
        const Index gates = product - kept;
        if (backward) {
            pack(weight, hidden, 1, gates, hidden, packed);
            if (kept) pack(weight + gates * hidden, hidden, 1, kept, hidden, packed + gates * padded<Real>(hidden));
        } else {
            pack(weight, 1, hidden, hidden, product, packed);
        }
    }

    void forward_step(Index t, Index first, Index last, const Real* packed, Real* products) const {
        const Index active = end_of_active(t, first, last);
        const Real* factor = factors(t, first, active, products + rows_a_thread() * products_row);
        if (is_rotated())
            for (Index row = 0; row < active - first; ++row)
                rotations.forward(factor + row * hidden, rotation_buffer(products), products + row * products_row);
        else
            multiply(active - first, factor, hidden, packed, hidden, product, products, products_row, false);
        for (Index row = first; row < last; ++row) {
            Real* out = vector(given.outputs, hidden, t, row);
            Real* out_c = vector(given.cell_states, cell_state, t, row);
            if (t >= length(row)) {
                std::fill_n(out, hidden, Real(0));
                continue;
            }
            const Row<Real> seen = row_at(t, row);
            Cell::forward(seen, products + (row - first) * products_row, out, out_c);
            zone_out(out, seen.hidden, vector(given.keep, hidden, t, row), Real(given.keep_mean), hidden);
            zone_out(out_c, seen.cell_state, vector(given.keep_cell_state, cell_state, t, row),
                     Real(given.keep_cell_state_mean), cell_state);
            if (t == length(row) - 1 && given.final_hidden) {
                std::memcpy(vector(given.final_hidden, hidden, 0, row), out, hidden * sizeof(Real));
                if (cell_state)
                    std::memcpy(vector(given.final_cell_state, cell_state, 0, row), out_c, cell_state * sizeof(Real));
            }
        }
    }

    // A thread's buffer starts with the gradient that is passed from step to step.
    void begin_backward(Index first, Index last, Real* buffer) const {
        std::fill_n(buffer, (last - first) * carry_row, Real(0));
        std::fill_n(buffer + rows_a_thread() * carry_row, (last - first) * cell_state, Real(0));
    }

    // `outer`: gradients of the outputs with row stride `outer_row`, or null.
    void backward_step(Index t, Index first, Index last, const Real* outer, Index outer_row, const Real* packed,
                       Real* buffer) const {
        const Index active = end_of_active(t, first, last), rows = active - first, gates = product - kept;
        Real *carry = buffer, *carry_c = carry + rows_a_thread() * carry_row;
        Real *dropped = carry_c + rows_a_thread() * cell_state, *scratch = dropped + rows_a_thread() * carry_row;
        Real *direct = scratch + 2 * parts, *direct_c = direct + hidden;  // through zoneout
        for (Index row = first; row < last; ++row) {
            Real *own = carry + (row - first) * carry_row, *own_c = carry_c + (row - first) * cell_state;
            if (t >= length(row)) {
                std::fill_n(vector(given.parts, parts, t, row), parts, Real(0));
                if (kept) std::fill_n(vector(given.kept, kept, t, row), kept, Real(0));
                continue;
            }
            if (t == length(row) - 1 && given.grad_h0) {
                std::memcpy(own, vector(given.grad_h0, hidden, 0, row), hidden * sizeof(Real));
                if (cell_state)
                    std::memcpy(own_c, vector(given.grad_c0, cell_state, 0, row), cell_state * sizeof(Real));
            }
            if (outer)
                for (Index i = 0; i < hidden; ++i) own[i] += outer[(row - first) * outer_row + i];
            const Real* keep = vector(given.keep, hidden, t, row);
            const Real* keep_cell_state = vector(given.keep_cell_state, cell_state, t, row);
            const bool zoned = keep || given.keep_mean != 0;
            const bool zoned_c = keep_cell_state || given.keep_cell_state_mean != 0;
            if (zoned) zone_out_backward(own, direct, keep, Real(given.keep_mean), hidden);
            if (zoned_c)
                zone_out_backward(own_c, direct_c, keep_cell_state, Real(given.keep_cell_state_mean), cell_state);
            Cell::backward(row_at(t, row), vector(given.cell_states, cell_state, t, row), own, own_c,
                           at(given.grad_extra, row / BLOCK * given.extra_size), scratch);
            if (zoned)
                for (Index i = 0; i < hidden; ++i) own[i] += direct[i];
            if (zoned_c)
                for (Index i = 0; i < cell_state; ++i) own_c[i] += direct_c[i];
        }
        Real* entering = given.drop ? dropped : carry;
        if (is_rotated())
            rotate_back(t, first, active, packed, buffer, entering);
        else
            multiply(rows, vector(given.parts, parts, t, first), parts, packed, gates, hidden, entering, carry_row,
                     !given.drop);
        if (kept)
            multiply(rows, vector(given.kept, kept, t, first), kept, packed + gates * padded<Real>(hidden), kept,
                     hidden, entering, carry_row, true);
        if (given.drop)
            for (Index row = first; row < active; ++row) {
                const Real* drop = vector(given.drop, hidden, 0, row);
                const Index offset = (row - first) * carry_row;
                for (Index i = 0; i < hidden; ++i) carry[offset + i] += drop[i] * dropped[offset + i];
            }
        if (!any_begins(t, first, active)) return;
        for (Index row = first; row < active; ++row) {
            if (t >= length(row) || !begins(t, row)) continue;
            Real* own = carry + (row - first) * carry_row;
            if (given.grad_fresh) {
                Real* sum = at(given.grad_fresh, row / BLOCK * hidden);
                for (Index i = 0; i < hidden; ++i) sum[i] += own[i];
            }
            std::fill_n(own, hidden, Real(0));
            std::fill_n(carry_c + (row - first) * cell_state, cell_state, Real(0));
        }
    }

    // Adds the gradients of the hidden vectors that the products of a step read to `entering`, and those of the layers.
    void rotate_back(Index t, Index first, Index last, const Real* packed, Real* buffer, Real* entering) const {
        Real *read = rotation_buffer(buffer), *values = read + hidden;
        for (Index row = first; row < last; ++row) {
            Real *own = entering + (row - first) * carry_row, *sums = at(given.grad_w_hh);
            sums += row / BLOCK * 2 * given.layers * hidden;
            if (given.drop) std::fill_n(own, hidden, Real(0));
            if (t >= length(row)) continue;
            rotations.backward(factors(t, row, row + 1, read), vector(given.parts, parts, t, row), packed, values, own,
                               sums, sums + given.layers * hidden);
        }
    }

    void end_backward(Index first, Index last, const Real* buffer) const {
        const Real *carry = buffer, *carry_c = carry + rows_a_thread() * carry_row;
        for (Index row = first; row < last; ++row) {
            std::memcpy(vector(given.grad_h0, hidden, 0, row), carry + (row - first) * carry_row,
                        hidden * sizeof(Real));
            if (cell_state)
                std::memcpy(vector(given.grad_c0, cell_state, 0, row), carry_c + (row - first) * cell_state,
                            cell_state * sizeof(Real));
        }
    }
};

template <class Real, class Work>
auto with_cell(const Arguments& given, Work work) {
    switch (given.kind) {
        case 0: return work(Scan<Real, RealModRelu>(given));
        case 1: return work(Scan<Real, ComplexModRelu>(given));
        case 2: return work(Scan<Real, Goru>(given));
        case 3: return work(Scan<Real, NormalizedGoru>(given));
        case 4: return work(Scan<Real, OnLstm>(given));
        case 5: return work(Scan<Real, Lstm>(given));
        case 6: return work(Scan<Real, NormalizedLstm>(given));
        case 7: return work(Scan<Real, Gru>(given));
        case 8: return work(Scan<Real, Elman<Tanh>>(given));
        default: return work(Scan<Real, Elman<Relu>>(given));
    }
}

}  // namespace
}  // namespace gated
