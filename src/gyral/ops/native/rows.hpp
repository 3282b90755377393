// The loop of a recurrence without products between its rows or units: all rows of a thread take a step before any takes
// the next one, so that memory is read in order.

#pragma once

#include "native/common.hpp"

namespace {

// A step of a row, and where its values are. Tensors have the shapes (T, B, width) and (B, width).
struct Place {
    Index time, row, batch;
    bool has_ended, is_start, is_last;  // beyond the length; the state before counts as zero; the last within the length

    template <class Real> Real* of(void* base, Index width) const {
        return base ? static_cast<Real*>(base) + (time * batch + row) * width : nullptr;
    }
    template <class Real> Real* row_of(void* base, Index width) const {
        return base ? static_cast<Real*>(base) + row * width : nullptr;
    }
    // The state before the step: `h0` (B, width), or the previous of `outputs` (T, B, width).
    template <class Real, class Arguments> const Real* before(const Arguments& given, Index width) const {
        return time ? of<Real>(given.outputs, width) - batch * width : row_of<Real>(given.h0, width);
    }
};

// Calls forward_step, or from the last step backward_step, for every step of every row.
template <class Arguments, class Scan> void for_all_places(const Arguments& given, bool backward, const Scan& scan) {
    const Index* lengths = static_cast<const Index*>(given.lengths);
    const bool* starts = static_cast<const bool*>(given.starts);
#pragma omp parallel for num_threads(given.threads) schedule(static)
    for (Index thread = 0; thread < given.threads; ++thread) {
        const Index first = given.batch * thread / given.threads, last = given.batch * (thread + 1) / given.threads;
        for (Index step = 0; step < given.steps; ++step)
            for (Index row = first; row < last; ++row) {
                const Index time = backward ? given.steps - 1 - step : step;
                const Index length = lengths ? lengths[row] : given.steps;
                const bool is_start = starts && starts[time * given.batch + row];
                const Place at{time, row, given.batch, time >= length, is_start, time + 1 == length};
                backward ? scan.backward_step(at) : scan.forward_step(at);
            }
    }
}

}  // namespace
