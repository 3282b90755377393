// A short depthwise convolution over time, followed by SiLU; see gyral/ops/short_convolution/__init__.py.
//
// A block of rows goes through the steps together, so that memory is read in order, and what a window repeats is in the
// cache. The backward pass goes from the last step to the first, and keeps the gradients of one window.

#include <array>

#include "native/run.hpp"

namespace short_convolution {

// Pointers are to Real unless another type is given, and null for absent tensors.
struct Arguments {
    Index steps, batch, channels;  // T, B, C
    Index first, second;           // channels of the first and the second part; the third has the others
    Index kernel;                  // K
    void* values;                  // (T, B, C)
    void* weight;                  // (K, C)
    void* bias;                    // (C)
    void* history;                 // (B, K - 1, C)
    void* lengths;                 // (B) Index
    void* since;                   // (T, B) Index: the first step that the window reaches
    Index threads;
    void* workspace;
    void* part1;                   // (T, B, size of the part), as the others
    void* part2;
    void* part3;
    // of the backward pass
    void* grad_part1;
    void* grad_part2;
    void* grad_part3;
    void* grad_values;             // as values
    void* grad_history;            // as history
    void* grad_weight;             // (blocks of rows, K, C): sums over the rows of a block
    void* grad_bias;               // (blocks of rows, C), or null
};

// `fixed`: K, so that a window is in registers; 0: any K up to MOST.
constexpr Index MOST = 32;
constexpr Index AHEAD = 2;  // steps whose memory is fetched ahead

template <class Real, int fixed> struct Convolution {
    using Row = Vector<Real>;
    static constexpr Index SIZE = fixed ? fixed : MOST;
    struct Registers {  // not std::array: the attributes of vectors are lost in arguments of templates
        Row of[SIZE];
        Row& operator[](Index j) { return of[j]; }
        const Row& operator[](Index j) const { return of[j]; }
    };
    using Window = std::array<const Real*, SIZE>;

    const Arguments& given;
    const Index steps = given.steps, batch = given.batch, channels = given.channels;
    const Index past = given.kernel - 1, width = padded<Real>(channels);

    // K, known to the compiler if it is fixed
    Index kernel() const { return fixed ? fixed : given.kernel; }
    template <class Work> void for_window(const Work& work) const {
        for (Index j = 0; j < kernel(); ++j) work(j);
    }

    // of a thread: zeros, and the gradients of the sums of the last K steps of a block
    Index size() const { return width + given.kernel * BLOCK * width; }

    Real* at(void* base, Index offset) const { return base ? static_cast<Real*>(base) + offset : nullptr; }
    Index length(Index row) const { return given.lengths ? static_cast<const Index*>(given.lengths)[row] : steps; }
    bool reaches(Index t, Index step, Index row) const {
        return !given.since || step >= static_cast<const Index*>(given.since)[t * batch + row];
    }
    // The channels at a step of a tensor (T, B, C), before step 0 of one of (B, K - 1, C).
    Real* vector(void* tensor, void* before, Index t, Index row) const {
        return t >= 0 ? at(tensor, (t * batch + row) * channels) : at(before, (row * past + past + t) * channels);
    }
    Window window(Index t, Index row, const Real* zeros) const {
        Window found;
        for (Index j = 0; j < kernel(); ++j) {
            const Index step = t - past + j;
            found[j] = reaches(t, step, row) ? vector(given.values, given.history, step, row) : zeros;
        }
        return found;
    }

    // Processors do not foresee which memory the next steps of a block read and write. Always inline: GCC drops calls of a
    // function that has no effect but prefetching.
    template <bool is_written = false>
    [[gnu::always_inline]] void fetch(void* tensor, Index t, Index row, Index size, Index c) const {
        if (t >= 0 && t < steps) __builtin_prefetch(at(tensor, (t * batch + row) * size + c), is_written, 2);
    }

    // Calls work(part, its size, first channel) for the parts, or their gradients in the backward pass.
    template <class Work> void for_parts(const Work& work) const {
        const bool backward = given.grad_values;
        work(backward ? given.grad_part1 : given.part1, given.first, Index(0));
        if (given.second) work(backward ? given.grad_part2 : given.part2, given.second, given.first);
        const Index before = given.first + given.second;
        if (channels > before) work(backward ? given.grad_part3 : given.part3, channels - before, before);
    }
    Registers load_window(const void* matrix, Index c, Index count) const {
        Registers found;
        for_window([&](Index j) { found[j] = load_first(static_cast<const Real*>(matrix) + j * channels + c, count); });
        return found;
    }
    Row load_bias(Index c, Index count) const {
        return given.bias ? load_first(static_cast<const Real*>(given.bias) + c, count) : Row{};
    }

    // The work on registers is always inline in both passes: GCC makes one function of it otherwise, with the number of
    // elements as a variable.
    void forward(Index first, Index last, Real* zeros) const {
        for (Index t = 0; t < steps; ++t) {
            Window windows[BLOCK];
            for (Index row = first; row < last; ++row) windows[row - first] = window(t, row, zeros);
            for_parts([&](void* part, Index size, Index begin) {
                for_registers<Real>(size, [&](Index i, Index count) __attribute__((always_inline)) {
                    const Index c = begin + i;
                    const Registers weight = load_window(given.weight, c, count);
                    const Row bias = load_bias(c, count);
                    for (Index row = first; row < last; ++row) {
                        fetch(given.values, t + AHEAD, row, channels, c);
                        fetch<true>(part, t + AHEAD, row, size, i);
                        Row sum = bias;
                        for_window([&](Index j) { sum += weight[j] * load_first(windows[row - first][j] + c, count); });
                        Real* to = at(part, (t * batch + row) * size + i);
                        store_first<Real>(to, count, t < length(row) ? sum * sigmoids<Real>(sum) : Row{});
                    }
                });
            });
        }
    }

    void backward(Index block, Index first, Index last, Real* zeros) const {
        Real *ring = zeros + width, *grad_weight = at(given.grad_weight, block * kernel() * channels);
        Real* grad_bias = at(given.grad_bias, block * channels);
        const auto kept = [&](Index t, Index row) { return ring + (t % kernel() * BLOCK + row - first) * width; };
        for (Index t = steps - 1; t >= -past; --t) {
            Window windows[BLOCK], later[BLOCK];
            for (Index row = first; row < last; ++row) {
                if (t >= 0) windows[row - first] = window(t, row, zeros);
                for (Index j = 0; j < kernel(); ++j) {  // the gradient of the step whose window has this one at place j
                    const Index step = t + past - j;
                    const bool is_used = step >= 0 && step < length(row) && reaches(step, t, row);
                    later[row - first][j] = is_used ? kept(step, row) : zeros;
                }
            }
            for_parts([&](void* part, Index size, Index begin) {
                for_registers<Real>(size, [&](Index i, Index count) __attribute__((always_inline)) {
                    const Index c = begin + i;
                    const Registers weight = load_window(given.weight, c, count);
                    if (t >= 0 && part) {
                        const Row bias = load_bias(c, count);
                        Registers sums = load_window(grad_weight, c, count);
                        Row total = grad_bias ? load_first(grad_bias + c, count) : Row{};
                        for (Index row = first; row < last; ++row) {
                            if (t >= length(row)) continue;
                            fetch(given.values, t - past - AHEAD, row, channels, c);
                            fetch(part, t - AHEAD, row, size, i);
                            fetch<true>(given.grad_values, t - AHEAD, row, channels, c);
                            const auto& now = windows[row - first];
                            Registers value;
                            Row sum = bias;
                            for_window([&](Index j) {
                                value[j] = load_first(now[j] + c, count);
                                sum += weight[j] * value[j];
                            });
                            const Row gate = sigmoids<Real>(sum);
                            const Row slope = gate * (1 + sum * (1 - gate));
                            const Row grad = load_first(at(part, (t * batch + row) * size + i), count) * slope;
                            store_first<Real>(kept(t, row) + c, count, grad);
                            for_window([&](Index j) { sums[j] += grad * value[j]; });
                            total += grad;
                        }
                        for_window([&](Index j) { store_first<Real>(grad_weight + j * channels + c, count, sums[j]); });
                        if (grad_bias) store_first<Real>(grad_bias + c, count, total);
                    }
                    for (Index row = first; row < last; ++row) {
                        Row sum = {};
                        const Window& steps_later = later[row - first];
                        for_window([&](Index j) { sum += weight[j] * load_first((part ? steps_later[j] : zeros) + c, count); });
                        store_first<Real>(vector(given.grad_values, given.grad_history, t, row) + c, count, sum);
                    }
                });
            });
        }
    }
};

template <class Real, int fixed> void run(const Arguments& given, bool backward) {
    const Convolution<Real, fixed> convolution{given};
    const Index size = convolution.size();
    for_all_rows<Real>(given.batch, BLOCK, given.threads, static_cast<Real*>(given.workspace), size,
                       [&](Index first, Index last, Real* buffer) {
                           std::fill_n(buffer, convolution.width, Real(0));
                           backward ? convolution.backward(first / BLOCK, first, last, buffer)
                                    : convolution.forward(first, last, buffer);
                       });
}

template <class Real> void run(const Arguments& given, bool backward) {
    given.kernel == 4 ? run<Real, 4>(given, backward) : run<Real, 0>(given, backward);
}

}  // namespace short_convolution

extern "C" {
Index short_convolution_arguments_size() { return sizeof(short_convolution::Arguments); }
Index short_convolution_block() { return BLOCK; }
Index short_convolution_workspace(const short_convolution::Arguments* given, Index is_double) {
    return given->threads * (is_double ? short_convolution::Convolution<double, 0>{*given}.size()
                                       : short_convolution::Convolution<float, 0>{*given}.size());
}
void short_convolution_run(const short_convolution::Arguments* given, Index is_double, Index backward) {
    is_double ? short_convolution::run<double>(*given, backward) : short_convolution::run<float>(*given, backward);
}
}
