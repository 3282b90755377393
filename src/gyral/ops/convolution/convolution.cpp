// Depthwise convolution over time with weights that the channels of a head share; see `gyral.ops.convolution`.
//
//     y_t = Σ_j w_j v_{t − back + j},   j = 0 … kernel − 1
//
// The weights are constant, or those of each step: its scores or their softmax, times a mask. Both kernels copy
// what they read into buffers of one tile of steps, where vectors are contiguous: with constant weights the lanes of a
// vector are channels, else they are steps, so that no sum runs over the lanes.

#include "native/common.hpp"

namespace convolution {

// Pointers are to Real unless noted otherwise, and null for absent tensors.
struct Arguments {
    Index steps, batch, channels, heads, kernel, back, past, softmax, threads;
    void* values;        // (T, B, N)
    void* history;       // (B, past, N): values before step 0, the latest last
    void* weights;       // constant weights (H, K), or null
    void* scores;        // (T, B, H, K), or null: constant weights; the weights themselves unless `softmax`
    void* mask;          // (T, B, H, K): factors of the weights of each step, or null
    void* since;         // Index (T, B): the first step in reach, or null
    void* lengths;       // Index (B), or null
    void* outputs;       // (T, B, N)
    void* workspace;     // convolution_workspace(...) elements
    void* grad_outputs;  // (T, B, N)
    void* grad_values;   // (T, B, N)
    void* grad_history;  // (B, past, N), or null
    void* grad_weights;  // (blocks of rows, K, N) partial sums by channel; with weights of each step (T, B, H, K)
};

namespace {

constexpr Index TILE = 128;  // steps
constexpr Index WIDE = 16;   // channels of a head that are in the buffers at once
constexpr Index STRIP = 8;   // steps whose sums are in registers

template <class Real> struct Convolution {
    typedef Real Vector __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(Real)), may_alias));

    const Arguments& given;
    const Index steps, batch, channels, heads, kernel, back;
    static constexpr Index L = LANES<Real>;

    explicit Convolution(const Arguments& a)
        : given(a), steps(a.steps), batch(a.batch), channels(a.channels), heads(a.heads), kernel(a.kernel),
          back(a.back) {}

    Real* at(void* base, Index offset = 0) const { return base ? static_cast<Real*>(base) + offset : nullptr; }
    Index length(Index row) const { return given.lengths ? static_cast<Index*>(given.lengths)[row] : steps; }
    Index first_channel(Index head) const { return (head * channels + heads - 1) / heads; }
    Index head_of(Index channel) const { return channel * heads / channels; }
    static Index whole_strips(Index count) { return (count + STRIP - 1) / STRIP * STRIP; }
    static const Vector& load(const Real* from) { return *reinterpret_cast<const Vector*>(from); }
    static Vector& store(Real* to) { return *reinterpret_cast<Vector*>(to); }

    // The channels of a row at a step of `tensor` (T, B, N), before step 0 of `before` (B, past, N); null: zeros.
    const Real* vector(void* tensor, void* before, Index t, Index row) const {
        if (t >= length(row)) return nullptr;
        if (t >= 0) return at(tensor, (t * batch + row) * channels);
        return before && -t <= given.past ? at(before, (row * given.past + given.past + t) * channels) : nullptr;
    }

    // elements of workspace per thread
    Index reach() const { return TILE + kernel - 1; }       // steps of the inputs of a tile
    Index wide_row() const { return reach() + L; }          // a buffer's row of steps, with room for a whole vector
    Index workspace_per_thread() const {
        if (!given.scores && !given.since) return 2 * (reach() + STRIP) * L + (kernel + STRIP) * L;
        return 2 * WIDE * wide_row() + (2 * kernel + 2) * wide_row();
    }

    // ---------------------------------------------------------------- constant weights: lanes are channels

    // The weights (kernel, L) of a chunk of channels; `reversed` for the gradient of the inputs.
    void spread_weights(Index first, bool reversed, Real* spread) const {
        std::fill_n(spread, kernel * L, Real(0));
        for (Index j = 0; j < kernel; ++j)
            for (Index c = 0; c < std::min(L, channels - first); ++c) {
                const Index place = reversed ? kernel - 1 - j : j;
                spread[place * L + c] = at(given.weights, head_of(first + c) * kernel)[j];
            }
    }

    // Copies steps [from, from + count) of a chunk of channels to a buffer (count, L).
    void copy_in(void* tensor, void* before, Index row, Index first, Index from, Index count, Real* buffer) const {
        const Index width = std::min(L, channels - first);
        for (Index i = 0; i < count; ++i, buffer += L) {
            const Real* source = vector(tensor, before, from + i, row);
            if (source && width == L)
                store(buffer) = load(source + first);
            else
                for (Index c = 0; c < L; ++c) buffer[c] = source && c < width ? source[first + c] : 0;
        }
    }

    // STRIP sums Σ_j spread_j · inputs_{i + j}, for i = 0 … STRIP − 1. An input is read once for all sums that it is in;
    // the first and the last inputs are in some of them.
    void strip(const Real* inputs, const Real* spread, Vector* sums) const {
        Vector sum[STRIP] = {};
        if (kernel < STRIP) {
            for (Index i = 0; i < STRIP; ++i)
                for (Index j = 0; j < kernel; ++j) sum[i] += load(spread + j * L) * load(inputs + (i + j) * L);
        } else {
            for (Index s = 0; s < STRIP - 1; ++s) {
                const Vector input = load(inputs + s * L);
                for (Index i = 0; i <= s; ++i) sum[i] += load(spread + (s - i) * L) * input;
            }
            for (Index s = STRIP - 1; s < kernel; ++s) {
                const Vector input = load(inputs + s * L);
                for (Index i = 0; i < STRIP; ++i) sum[i] += load(spread + (s - i) * L) * input;
            }
            for (Index extra = 1; extra < STRIP; ++extra) {
                const Vector input = load(inputs + (kernel - 1 + extra) * L);
                for (Index i = extra; i < STRIP; ++i) sum[i] += load(spread + (kernel - 1 + extra - i) * L) * input;
            }
        }
        for (Index i = 0; i < STRIP; ++i) sums[i] = sum[i];
    }

    void write(const Vector& sum, Real* out, Index first) const {
        if (channels - first >= L)
            store(out + first) = sum;
        else
            for (Index c = 0; c < channels - first; ++c) out[first + c] = sum[c];
    }

    void forward_constant(Index row, Index first, Real* buffer) const {
        Real *spread = buffer, *inputs = spread + kernel * L;
        spread_weights(first, false, spread);
        const Index end = length(row);
        Vector sums[STRIP];
        for (Index start = 0; start < steps; start += TILE) {
            const Index count = std::min(TILE, steps - start);
            copy_in(given.values, given.history, row, first, start - back, whole_strips(count) + kernel - 1, inputs);
            for (Index t = 0; t < count; t += STRIP) {
                strip(inputs + t * L, spread, sums);
                for (Index i = 0; i < std::min(STRIP, count - t); ++i)
                    write(start + t + i < end ? sums[i] : Vector{}, at(given.outputs, row_at(start + t + i, row)), first);
            }
        }
    }

    Index row_at(Index t, Index row) const { return (t * batch + row) * channels; }

    // grad_v_s = Σ_j w_j grad_y_{s + back − j}: the same sums over the gradients, with the weights reversed
    void backward_inputs_constant(Index row, Index first, Real* buffer) const {
        Real *spread = buffer, *inputs = spread + kernel * L;
        spread_weights(first, true, spread);
        const Index begin = given.grad_history ? -given.past : 0, end = length(row);
        Vector sums[STRIP];
        for (Index start = begin; start < steps; start += TILE) {
            const Index count = std::min(TILE, steps - start);
            copy_in(given.grad_outputs, nullptr, row, first, start + back - (kernel - 1), whole_strips(count) + kernel - 1,
                    inputs);
            for (Index t = 0; t < count; t += STRIP) {
                strip(inputs + t * L, spread, sums);
                for (Index i = 0; i < std::min(STRIP, count - t); ++i)
                    write(start + t + i < end ? sums[i] : Vector{}, gradient_at(start + t + i, row), first);
            }
        }
    }

    Real* gradient_at(Index s, Index row) const {
        return s >= 0 ? at(given.grad_values, row_at(s, row))
                      : at(given.grad_history, (row * given.past + given.past + s) * channels);
    }

    // Adds Σ_t grad_y_t v_{t − back + j} to `total` (kernel padded to STRIP, L).
    void backward_weights_constant(Index row, Index first, Real* buffer, Real* total) const {
        Real *inputs = buffer, *gradients = inputs + (reach() + STRIP) * L;
        for (Index start = 0; start < length(row); start += TILE) {
            const Index count = whole_strips(std::min(TILE, steps - start));
            copy_in(given.values, given.history, row, first, start - back, count + kernel - 1 + STRIP, inputs);
            copy_in(given.grad_outputs, nullptr, row, first, start, count, gradients);
            for (Index j = 0; j < kernel; j += STRIP) {
                Vector sum[STRIP];
                for (Index i = 0; i < STRIP; ++i) sum[i] = load(total + (j + i) * L);
                for (Index t = 0; t < count; t += 4) {
                    Vector input[STRIP + 3], gradient[4];
                    for (Index i = 0; i < STRIP + 3; ++i) input[i] = load(inputs + (t + j + i) * L);
                    for (Index i = 0; i < 4; ++i) gradient[i] = load(gradients + (t + i) * L);
                    for (Index i = 0; i < STRIP; ++i)
                        for (Index k = 0; k < 4; ++k) sum[i] += gradient[k] * input[i + k];
                }
                for (Index i = 0; i < STRIP; ++i) store(total + (j + i) * L) = sum[i];
            }
        }
    }

    void backward_constant(Index block, Index first, Real* buffer) const {
        Real* total = buffer + 2 * (reach() + STRIP) * L;
        const Index last = std::min(batch, (block + 1) * BLOCK);
        for (Index row = block * BLOCK; row < last; ++row) backward_inputs_constant(row, first, buffer);
        std::fill_n(total, (kernel + STRIP) * L, Real(0));
        for (Index row = block * BLOCK; row < last; ++row) backward_weights_constant(row, first, buffer, total);
        for (Index j = 0; j < kernel; ++j)
            write(load(total + j * L), at(given.grad_weights, (block * kernel + j) * channels), first);
    }

    // ---------------------------------------------------------------- weights of each step: lanes are steps

    Index place(Index t, Index row, Index head) const { return ((t * batch + row) * heads + head) * kernel; }

    // Fills (kernel, wide_row) with the weights of a head at the steps [from, from + count), zero where there is no
    // output; before the mask if `plain`, which holds the probabilities.
    void fill_weights(Index row, Index head, Index from, Index count, Real* weights, Real* scratch, bool plain) const {
        const Index stride = wide_row(), end = length(row);
        for (Index i = 0; i < count; ++i) {
            const Index t = from + i;
            const bool present = t >= 0 && t < end;
            const Real* own = given.scores ? at(given.scores, present ? place(t, row, head) : 0)
                                           : at(given.weights, head * kernel);
            for (Index j = 0; j < kernel; ++j) weights[j * stride + i] = present ? own[j] : 0;
        }
        if (given.scores && given.softmax) softmax(count, weights, scratch);
        for (Index i = 0; i < count; ++i) {
            const Index t = from + i;
            if (t < 0 || t >= end) {
                for (Index j = 0; j < kernel; ++j) weights[j * stride + i] = 0;
                continue;
            }
            if (plain) continue;
            if (given.mask) {
                const Real* factors = at(given.mask, place(t, row, head));
                for (Index j = 0; j < kernel; ++j) weights[j * stride + i] *= factors[j];
            }
            for (Index j = 0; j < out_of_reach(t, row); ++j) weights[j * stride + i] = 0;
        }
    }

    // The number of weights of a step that would read from before its row's last start.
    Index out_of_reach(Index t, Index row) const {
        if (!given.since) return 0;
        const Index first = static_cast<Index*>(given.since)[t * batch + row];
        return std::min(kernel, std::max<Index>(0, first - (t - back)));
    }

    void softmax(Index count, Real* weights, Real* scratch) const {
        const Index stride = wide_row();
        Real *__restrict largest = scratch, *__restrict sum = scratch + stride;
        for (Index i = 0; i < count; ++i) largest[i] = weights[i], sum[i] = 0;
        for (Index j = 1; j < kernel; ++j)
            for (Index i = 0; i < count; ++i) largest[i] = std::max(largest[i], weights[j * stride + i]);
        for (Index j = 0; j < kernel; ++j) {
            Real* __restrict own = weights + j * stride;
            for (Index i = 0; i < count; ++i) {
                own[i] = exponential(own[i] - largest[i]);
                sum[i] += own[i];
            }
        }
        for (Index i = 0; i < count; ++i) sum[i] = 1 / sum[i];
        for (Index j = 0; j < kernel; ++j)
            for (Index i = 0; i < count; ++i) weights[j * stride + i] *= sum[i];
    }

    // Copies steps [from, from + count) of some channels to a buffer (channels, wide_row).
    void turn_in(void* tensor, void* before, Index row, Index first, Index width, Index from, Index count,
                 Real* buffer) const {
        const Index stride = wide_row();
        for (Index i = 0; i < count; ++i) {
            const Real* source = vector(tensor, before, from + i, row);
            for (Index c = 0; c < width; ++c) buffer[c * stride + i] = source ? source[first + c] : 0;
        }
    }

    // Calls work(first channel, number of channels) for the channels of a head, WIDE at a time.
    template <class Work> void for_channels(Index head, Work work) const {
        const Index last = first_channel(head + 1);
        for (Index first = first_channel(head); first < last; first += WIDE) work(first, std::min(WIDE, last - first));
    }

    struct Buffers {
        Real *inputs, *gradients, *weights, *grad_weights, *scratch;
    };
    Buffers split(Real* buffer) const {
        const Index stride = wide_row();
        Real *gradients = buffer + WIDE * stride, *weights = gradients + WIDE * stride;
        return {buffer, gradients, weights, weights + kernel * stride, weights + 2 * kernel * stride};
    }

    void forward_head(Index row, Index head, Real* buffer) const {
        const Buffers own = split(buffer);
        const Index stride = wide_row();
        for (Index start = 0; start < steps; start += TILE) {
            const Index count = std::min(TILE, steps - start);
            fill_weights(row, head, start, count, own.weights, own.scratch, false);
            for_channels(head, [&](Index first, Index width) {
                turn_in(given.values, given.history, row, first, width, start - back, count + kernel - 1, own.inputs);
                for (Index t = 0; t < count; t += L)
                    for (Index c = 0; c < width; ++c) {
                        Vector sum[2] = {};
                        const Real *input = own.inputs + c * stride + t, *weight = own.weights + t;
                        Index j = 0;
                        for (; j + 1 < kernel; j += 2) {
                            sum[0] += load(weight + j * stride) * load(input + j);
                            sum[1] += load(weight + (j + 1) * stride) * load(input + j + 1);
                        }
                        if (j < kernel) sum[0] += load(weight + j * stride) * load(input + j);
                        store(own.gradients + c * stride + t) = sum[0] + sum[1];
                    }
                for (Index t = 0; t < count; ++t) {
                    // not the vectors' own zeros: a zero weight times what is beyond the end may be NaN
                    const bool present = start + t < length(row);
                    Real* out = at(given.outputs, row_at(start + t, row) + first);
                    for (Index c = 0; c < width; ++c) out[c] = present ? own.gradients[c * stride + t] : 0;
                }
            });
        }
    }

    // grad_v_s = Σ_j w_{t,j} grad_y_t with t = s + back − j
    void backward_inputs_head(Index row, Index head, Real* buffer) const {
        const Buffers own = split(buffer);
        const Index stride = wide_row(), begin = given.grad_history ? -given.past : 0;
        for (Index start = begin; start < steps; start += TILE) {
            const Index count = std::min(TILE, steps - start), from = start + back - (kernel - 1);
            fill_weights(row, head, from, count + kernel - 1, own.weights, own.scratch, false);
            for_channels(head, [&](Index first, Index width) {
                turn_in(given.grad_outputs, nullptr, row, first, width, from, count + kernel - 1, own.gradients);
                for (Index t = 0; t < count; t += L)
                    for (Index c = 0; c < width; ++c) {
                        Vector sum = {};
                        const Real *gradient = own.gradients + c * stride + t, *weight = own.weights + t;
                        for (Index j = 0; j < kernel; ++j) {
                            const Index shift = kernel - 1 - j;
                            sum += load(weight + j * stride + shift) * load(gradient + shift);
                        }
                        store(own.inputs + c * stride + t) = sum;
                    }
                for (Index t = 0; t < count; ++t) {
                    const bool present = start + t < length(row);
                    Real* out = gradient_at(start + t, row) + first;
                    for (Index c = 0; c < width; ++c) out[c] = present ? own.inputs[c * stride + t] : 0;
                }
            });
        }
    }

    // grad_w_{t,j} = Σ_c grad_y_{t,c} v_{t − back + j, c}, then through mask and softmax; or summed over the steps
    void backward_weights_head(Index row, Index head, Real* buffer, Real* total) const {
        const Buffers own = split(buffer);
        const Index stride = wide_row();
        for (Index start = 0; start < steps; start += TILE) {
            const Index count = std::min(TILE, steps - start);
            std::fill_n(own.grad_weights, kernel * stride, Real(0));
            for_channels(head, [&](Index first, Index width) {
                turn_in(given.values, given.history, row, first, width, start - back, count + kernel - 1, own.inputs);
                turn_in(given.grad_outputs, nullptr, row, first, width, start, count, own.gradients);
                for (Index t = 0; t < count; t += L)
                    for (Index j = 0; j < kernel; ++j) {
                        Vector sum = load(own.grad_weights + j * stride + t);
                        const Real *input = own.inputs + t + j, *gradient = own.gradients + t;
                        for (Index c = 0; c < width; ++c) sum += load(gradient + c * stride) * load(input + c * stride);
                        store(own.grad_weights + j * stride + t) = sum;
                    }
            });
            if (given.scores)
                differentiate_scores(row, head, start, count, own);
            else
                for (Index i = 0; i < std::min(count, length(row) - start); ++i)
                    for (Index j = out_of_reach(start + i, row); j < kernel; ++j)
                        total[j] += own.grad_weights[j * stride + i];
        }
    }

    void differentiate_scores(Index row, Index head, Index start, Index count, const Buffers& own) const {
        const Index stride = wide_row(), end = length(row);
        if (given.softmax) fill_weights(row, head, start, count, own.weights, own.scratch, true);
        for (Index i = 0; i < count; ++i) {
            const Index t = start + i, hidden = out_of_reach(t, row);
            for (Index j = 0; j < hidden; ++j) own.grad_weights[j * stride + i] = 0;
            if (!given.mask) continue;
            const Real* factors = at(given.mask, place(t, row, head));
            for (Index j = hidden; j < kernel; ++j) own.grad_weights[j * stride + i] *= factors[j];
        }
        Real* __restrict sum = own.scratch;
        std::fill_n(sum, count, Real(0));
        for (Index j = 0; given.softmax && j < kernel; ++j)
            for (Index i = 0; i < count; ++i) sum[i] += own.weights[j * stride + i] * own.grad_weights[j * stride + i];
        for (Index i = 0; i < count; ++i) {
            Real* out = at(given.grad_weights, place(start + i, row, head));
            const bool present = start + i < end;
            for (Index j = 0; j < kernel; ++j) {
                const Real factor = given.softmax ? own.weights[j * stride + i] : Real(1);
                out[j] = present ? factor * (own.grad_weights[j * stride + i] - sum[i]) : 0;
            }
        }
    }

    void backward_head(Index block, Index head, Real* buffer) const {
        const Index last = std::min(batch, (block + 1) * BLOCK);
        Real* total = at(given.grad_weights, given.scores ? 0 : (block * heads + head) * kernel);
        for (Index row = block * BLOCK; row < last; ++row) {
            backward_inputs_head(row, head, buffer);
            backward_weights_head(row, head, buffer, total);
        }
    }

    // Calls work(block of rows or row, chunk of channels or head, buffer of the thread) for all of them.
    template <class Work> void for_all(Index rows, Index columns, Work work) const {
        Real* buffers = at(given.workspace);
        const Index size = workspace_per_thread();
#pragma omp parallel for num_threads(given.threads) schedule(static)
        for (Index thread = 0; thread < given.threads; ++thread)
            for (Index task = thread; task < rows * columns; task += given.threads)
                work(task / columns, task % columns, buffers + thread * size);
    }

    void run(bool backward) const {
        const Index blocks = (batch + BLOCK - 1) / BLOCK, chunks = (channels + L - 1) / L;
        if (!given.scores && !given.since) {
            if (backward)
                for_all(blocks, chunks, [&](Index b, Index c, Real* buffer) { backward_constant(b, c * L, buffer); });
            else
                for_all(batch, chunks, [&](Index row, Index c, Real* buffer) { forward_constant(row, c * L, buffer); });
        } else if (backward) {
            for_all(blocks, heads, [&](Index b, Index head, Real* buffer) { backward_head(b, head, buffer); });
        } else {
            for_all(batch, heads, [&](Index row, Index head, Real* buffer) { forward_head(row, head, buffer); });
        }
    }
};

}  // namespace
}  // namespace convolution

extern "C" {

// size of `Arguments` in bytes, with which the caller checks its own definition of the structure
Index convolution_arguments_size() { return sizeof(convolution::Arguments); }
Index convolution_block() { return BLOCK; }

Index convolution_workspace(const convolution::Arguments* given, Index is_double) {
    return given->threads * (is_double ? convolution::Convolution<double>(*given).workspace_per_thread()
                                       : convolution::Convolution<float>(*given).workspace_per_thread());
}

void convolution_run(const convolution::Arguments* given, Index is_double, Index backward) {
    is_double ? convolution::Convolution<double>(*given).run(backward)
              : convolution::Convolution<float>(*given).run(backward);
}
}
