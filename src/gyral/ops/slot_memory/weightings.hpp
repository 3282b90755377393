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

template <class Real> inline void softmax(Real* __restrict x, Index size) {
    Real largest = x[0], sum = 0;
#pragma omp simd reduction(max : largest)
    for (Index i = 0; i < size; ++i) largest = x[i] > largest ? x[i] : largest;
#pragma omp simd reduction(+ : sum)
    for (Index i = 0; i < size; ++i) {
        x[i] = decay(x[i] - largest);
        sum += x[i];
    }
    const Real scale = 1 / sum;
    for (Index i = 0; i < size; ++i) x[i] *= scale;
}

// Overwrites the gradient of y = softmax(x) with that of x.
template <class Real> inline void softmax_backward(const Real* __restrict y, Real* __restrict gradient, Index size) {
    const Real along = dot(y, gradient, size);
    for (Index i = 0; i < size; ++i) gradient[i] = y[i] * (gradient[i] - along);
}

// out += scale * x
template <class Real> inline void accumulate(Real* __restrict out, Real scale, const Real* __restrict x, Index size) {
    for (Index i = 0; i < size; ++i) out[i] += scale * x[i];
}

template <class Real> struct Slots {
    Index count, width;

    // 1/|m|, the inverse norm of each slot
    void inverse_norms(const Real* __restrict memory, Real* __restrict norms) const {
        std::fill_n(norms, count, Real(COSINE_EPSILON));
        for (Index j = 0; j < width; ++j) {
            const Real* __restrict row = memory + j * count;
            for (Index i = 0; i < count; ++i) norms[i] += row[i] * row[i];
        }
        for (Index i = 0; i < count; ++i) norms[i] = 1 / std::sqrt(norms[i]);
    }

    Real inverse_norm(const Real* key) const { return 1 / std::sqrt(dot(key, key, width) + Real(COSINE_EPSILON)); }

    // weights = softmax(strength * cosines)
    void content(const Real* __restrict memory, const Real* __restrict norms, const Real* __restrict key, Real strength,
                 Real* __restrict cosines, Real* __restrict weights) const {
        const Real inverse = inverse_norm(key);
        std::fill_n(cosines, count, Real(0));
        for (Index j = 0; j < width; ++j) accumulate(cosines, key[j] * inverse, memory + j * count, count);
        for (Index i = 0; i < count; ++i) {
            cosines[i] *= norms[i];
            weights[i] = strength * cosines[i];
        }
        softmax(weights, count);
    }

    // Adds to the gradient of the memory, writes that of the key, and returns that of the strength. `gradient` is that
    // of the weights and is overwritten.
    Real content_backward(const Real* __restrict memory, const Real* __restrict norms, const Real* __restrict key,
                          Real strength, const Real* __restrict cosines, const Real* __restrict weights,
                          Real* __restrict gradient, Real* __restrict grad_memory, Real* __restrict grad_key,
                          Real* __restrict scratch) const {
        const Real inverse = inverse_norm(key);
        softmax_backward(weights, gradient, count);
        const Real grad_strength = dot(gradient, cosines, count), along = strength * grad_strength * inverse * inverse;
        for (Index i = 0; i < count; ++i) {
            const Real own = strength * gradient[i] * norms[i];
            scratch[i] = own * cosines[i] * norms[i];
            gradient[i] = own * inverse;
        }
        for (Index j = 0; j < width; ++j) {
            const Real *__restrict row = memory + j * count, value = key[j];
            Real *__restrict grad_row = grad_memory + j * count, sum = 0;
#pragma omp simd reduction(+ : sum)
            for (Index i = 0; i < count; ++i) {
                sum += gradient[i] * row[i];
                grad_row[i] += gradient[i] * value - scratch[i] * row[i];
            }
            grad_key[j] = sum - value * along;
        }
        return grad_strength;
    }

    // reading = the mean of the slots
    void read(const Real* memory, const Real* weights, Real* reading) const {
        for (Index j = 0; j < width; ++j) reading[j] = dot(memory + j * count, weights, count);
    }

    // Adds to the gradients of memory and weights.
    void read_backward(const Real* memory, const Real* weights, const Real* grad_reading, Real* grad_memory,
                       Real* grad_weights) const {
        for (Index j = 0; j < width; ++j) {
            accumulate(grad_weights, grad_reading[j], memory + j * count, count);
            accumulate(grad_memory + j * count, grad_reading[j], weights, count);
        }
    }

    // memory *= 1 - weights erase^T
    void erase(const Real* __restrict weights, const Real* __restrict vector, Real* __restrict memory) const {
        for (Index j = 0; j < width; ++j) {
            Real *__restrict row = memory + j * count, value = vector[j];
            for (Index i = 0; i < count; ++i) row[i] *= 1 - weights[i] * value;
        }
    }

    // memory += weights vector^T
    void add(const Real* weights, const Real* vector, Real* memory) const {
        for (Index j = 0; j < width; ++j) accumulate(memory + j * count, vector[j], weights, count);
    }

    // The backward pass of `kept * (1 - weights erase^T) + weights vector^T`, without the gradient of `kept`: adds to
    // the gradient of the weights and writes those of both vectors.
    void write_backward(const Real* __restrict kept, const Real* __restrict weights, const Real* __restrict erased,
                        const Real* __restrict vector, const Real* __restrict gradient, Real* __restrict grad_weights,
                        Real* __restrict grad_erase, Real* __restrict grad_vector) const {
        for (Index j = 0; j < width; ++j) {
            const Real *__restrict row = kept + j * count, *__restrict grad_row = gradient + j * count;
            const Real e = erased[j], v = vector[j];
            Real first = 0, second = 0;
#pragma omp simd reduction(+ : first, second)
            for (Index i = 0; i < count; ++i) {
                const Real own = grad_row[i] * weights[i];
                first -= own * row[i];
                second += own;
                grad_weights[i] += grad_row[i] * (v - e * row[i]);
            }
            grad_erase[j] = first;
            grad_vector[j] = second;
        }
    }
};

}  // namespace
}  // namespace slot_memory
