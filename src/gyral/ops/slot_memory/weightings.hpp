// Weightings of the slots of a memory, forward and backward; the equations are those of `gyral.ops.addressing`.
//
// A memory of C slots of width W is stored as (W, C), so that all loops over the slots are loops over vectors.

#pragma once

#include "native/common.hpp"

namespace slot_memory {
namespace {

constexpr double COSINE_EPSILON = 1e-6;  // these three as in addressing.py
constexpr double LOG_EPSILON = 1e-12;
constexpr double USAGE_EPSILON = 1e-6;

inline double decay(double x) { return std::exp(x); }
inline float decay(float x) { return x < -87.0f ? 0.0f : exponential(x); }  // no denormal numbers, which are slow

inline double logarithm(double x) { return std::log(x); }

// Cephes' logf in a form that compilers vectorize, for normal numbers.
inline float logarithm(float x) {
    std::int32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    const std::int32_t fraction = (bits & 0x007fffff) | 0x3f000000;
    float m, e = static_cast<float>((bits >> 23) - 126);
    std::memcpy(&m, &fraction, sizeof m);
    const bool small = m < 0.707106781f;
    e = small ? e - 1.0f : e;
    m = small ? m + m - 1.0f : m - 1.0f;
    const float z = m * m;
    float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    const float y = m + (p * m * z - 2.12194440e-4f * e - 0.5f * z) + 0.693359375f * e;
    return x > 0 ? y : std::numeric_limits<float>::quiet_NaN();
}

template <class Real> inline Real softplus(Real x) { return x > 20 ? x : std::log1p(std::exp(x)); }  // as torch
template <class Real> inline Real softplus_slope(Real x) { return x > 20 ? Real(1) : sigmoid(x); }

// ---------------------------------------------------------------- loops over slots

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

// The numbers of as many slots as a register holds, and the number of one slot: the argument of work of `for_slots`.
template <class Real> struct Register {
    typedef Real Value __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(Real)), may_alias));
    static const Value& at(const Real* from) { return *reinterpret_cast<const Value*>(from); }
    static Value& at(Real* from) { return *reinterpret_cast<Value*>(from); }
};
template <class Real> struct Single {
    static const Real& at(const Real* from) { return *from; }
    static Real& at(Real* from) { return *from; }
};

// Calls work(lane, i) for all slots i: a register of them at once, and the rest one by one. GCC reduces the sums of
// `omp simd` one lane after the other, which takes longer than these short loops.
template <class Real, class Work> inline __attribute__((always_inline)) void for_slots(Index count, Work work) {
    Index i = 0;
    for (; i + LANES<Real> <= count; i += LANES<Real>) work(Register<Real>{}, i);
    for (; i < count; ++i) work(Single<Real>{}, i);
}

// Returns the sum of work(lane, i) over all slots.
template <class Real, class Work> inline __attribute__((always_inline)) Real sum_slots(Index count, Work work) {
    typename Register<Real>::Value lanes = {};
    Real rest = 0;
    Index i = 0;
    for (; i + LANES<Real> <= count; i += LANES<Real>) lanes += work(Register<Real>{}, i);
    for (; i < count; ++i) rest += work(Single<Real>{}, i);
    return sum_of<Real>(lanes) + rest;
}

template <class Real> inline Real inner(const Real* a, const Real* b, Index count) {
    return sum_slots<Real>(count, [=](auto lane, Index i) { return lane.at(a + i) * lane.at(b + i); });
}

// out += scale * x
template <class Real> inline void accumulate(Real* out, Real scale, const Real* x, Index count) {
    for_slots<Real>(count, [&](auto lane, Index i) { lane.at(out + i) += scale * lane.at(x + i); });
}

template <class Real> inline void softmax(Real* __restrict x, Index count) {
    Real largest = x[0];
#pragma omp simd reduction(max : largest)
    for (Index i = 0; i < count; ++i) largest = x[i] > largest ? x[i] : largest;
    for (Index i = 0; i < count; ++i) x[i] = decay(x[i] - largest);
    const Real scale = 1 / sum_slots<Real>(count, [=](auto lane, Index i) { return lane.at(x + i); });
    for (Index i = 0; i < count; ++i) x[i] *= scale;
}

// Overwrites the gradient of y = softmax(x) with that of x.
template <class Real> inline void softmax_backward(const Real* y, Real* gradient, Index count) {
    const Real along = inner(y, gradient, count);
    for_slots<Real>(count, [&](auto lane, Index i) {
        auto& own = lane.at(gradient + i);
        own = lane.at(y + i) * (own - along);
    });
}

// ---------------------------------------------------------------- a memory

template <class Real> struct Slots {
    Index count, width;

    // 1/|m|, the inverse norm of each slot
    void inverse_norms(const Real* memory, Real* __restrict norms) const {
        for_slots<Real>(count, [&](auto lane, Index i) {
            auto sum = lane.at(memory + i) * lane.at(memory + i);
            for (Index j = 1; j < width; ++j) sum += lane.at(memory + j * count + i) * lane.at(memory + j * count + i);
            lane.at(norms + i) = sum + Real(COSINE_EPSILON);
        });
        for (Index i = 0; i < count; ++i) norms[i] = 1 / std::sqrt(norms[i]);
    }

    Real inverse_norm(const Real* key) const { return 1 / std::sqrt(inner(key, key, width) + Real(COSINE_EPSILON)); }

    // weights = softmax(strength * cosines)
    void content(const Real* memory, const Real* norms, const Real* key, Real strength, Real* cosines,
                 Real* weights) const {
        const Real inverse = inverse_norm(key);
        for_slots<Real>(count, [&](auto lane, Index i) {
            auto sum = key[0] * lane.at(memory + i);
            for (Index j = 1; j < width; ++j) sum += key[j] * lane.at(memory + j * count + i);
            sum *= inverse * lane.at(norms + i);
            lane.at(cosines + i) = sum;
            lane.at(weights + i) = strength * sum;
        });
        softmax(weights, count);
    }

    // Adds to the gradient of the memory, writes that of the key, and returns that of the strength. `gradient` is that
    // of the weights and is overwritten.
    Real content_backward(const Real* memory, const Real* norms, const Real* key, Real strength, const Real* cosines,
                          const Real* weights, Real* gradient, Real* grad_memory, Real* grad_key, Real* scratch) const {
        const Real inverse = inverse_norm(key);
        softmax_backward(weights, gradient, count);
        const Real grad_strength = inner(gradient, cosines, count);
        const Real along = strength * grad_strength * inverse * inverse;
        for_slots<Real>(count, [&](auto lane, Index i) {
            const auto own = strength * lane.at(gradient + i) * lane.at(norms + i);
            lane.at(scratch + i) = own * lane.at(cosines + i) * lane.at(norms + i);
            lane.at(gradient + i) = own * inverse;
        });
        for (Index j = 0; j < width; ++j, memory += count, grad_memory += count) {
            const Real value = key[j];
            const Real sum = sum_slots<Real>(count, [=](auto lane, Index i) {
                const auto own = lane.at(gradient + i), slot = lane.at(memory + i);
                lane.at(grad_memory + i) += own * value - lane.at(scratch + i) * slot;
                return own * slot;
            });
            grad_key[j] = sum - value * along;
        }
        return grad_strength;
    }

    // reading = the mean of the slots
    void read(const Real* memory, const Real* weights, Real* reading) const {
        for (Index j = 0; j < width; ++j) reading[j] = inner(memory + j * count, weights, count);
    }

    // Adds to the gradients of memory and weights.
    void read_backward(const Real* memory, const Real* weights, const Real* grad_reading, Real* grad_memory,
                       Real* grad_weights) const {
        for_slots<Real>(count, [&](auto lane, Index i) {
            auto sum = lane.at(grad_weights + i);
            const auto weight = lane.at(weights + i);
            for (Index j = 0; j < width; ++j) {
                sum += grad_reading[j] * lane.at(memory + j * count + i);
                lane.at(grad_memory + j * count + i) += grad_reading[j] * weight;
            }
            lane.at(grad_weights + i) = sum;
        });
    }

    // memory *= 1 - weights erased^T
    void erase(const Real* weights, const Real* erased, Real* memory) const {
        for (Index j = 0; j < width; ++j, memory += count) {
            const Real value = erased[j];
            for_slots<Real>(count,
                            [&](auto lane, Index i) { lane.at(memory + i) *= 1 - lane.at(weights + i) * value; });
        }
    }

    // memory += weights vector^T
    void add(const Real* weights, const Real* vector, Real* memory) const {
        for (Index j = 0; j < width; ++j) accumulate(memory + j * count, vector[j], weights, count);
    }

    // memory = old * (1 - weights erased^T) + weights vector^T
    void write(const Real* old, const Real* weights, const Real* erased, const Real* vector, Real* memory) const {
        for (Index j = 0; j < width; ++j, old += count, memory += count) {
            const Real e = erased[j], v = vector[j];
            for_slots<Real>(count, [&](auto lane, Index i) {
                const auto weight = lane.at(weights + i);
                lane.at(memory + i) = lane.at(old + i) * (1 - weight * e) + weight * v;
            });
        }
    }

    // Adds to the gradient of the weights, and writes those of both vectors. `old` and `gradient`, that of the new
    // memory, are those of a single head.
    void write_backward(const Real* old, const Real* weights, const Real* erased, const Real* vector,
                        const Real* gradient, Real* grad_weights, Real* grad_erased, Real* grad_vector) const {
        for (Index j = 0; j < width; ++j, old += count, gradient += count) {
            const Real e = erased[j], v = vector[j];
            grad_erased[j] = -sum_slots<Real>(count, [=](auto lane, Index i) {
                const auto slot = lane.at(old + i), own = lane.at(gradient + i);
                lane.at(grad_weights + i) += own * (v - e * slot);
                return own * lane.at(weights + i) * slot;
            });
            grad_vector[j] = inner(gradient, weights, count);
        }
    }
};

}  // namespace
}  // namespace slot_memory
