// How a recurrence goes over a whole sequence.
//
// Rows of the batch do not meet, so every thread runs its own rows through all steps, without a barrier. A recurrence is
// a class with `forward_step` and `backward_step` of some rows; `room` is a thread's own memory, `packed` the weights.

#pragma once

#include "native/common.hpp"

namespace {

// Calls work(first, last, room) for all rows, so many of them at a time, on all threads.
template <class Real, class Work>
void share_out(Index batch, Index together, Index threads, Real* rooms, Index room_size, Work work) {
    const Index chunks = (batch + together - 1) / together;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (Index thread = 0; thread < threads; ++thread)
        for (Index chunk = thread; chunk < chunks; chunk += threads)
            work(chunk * together, std::min(batch, (chunk + 1) * together), rooms + thread * room_size);
}

// Rows that a thread takes through all steps at a time: few, so that they stay in the cache, unless the weights do not,
// which are then read once a step.
inline Index rows_at_once(Index weight_bytes, Index rows_a_thread) {
    return weight_bytes < (Index(1) << 19) ? BLOCK : rows_a_thread;
}

template <class Scan> Index workspace(const Scan& scan) {
    return scan.packed_size() + scan.given.threads * scan.temporaries;
}

template <class Real, template <class, class> class Scan, class Kind>
void run(const Scan<Real, Kind>& scan, bool backward) {
    Real* packed = scan.at(scan.given.workspace);
    scan.pack_weight(backward, packed);
    const auto rows = [&](Index first, Index last, Real* room) {
        if (backward) {
            const Index width = scan.outputs_width();
            scan.begin_backward(first, last, room);
            for (Index t = scan.steps - 1; t >= 0; --t)
                scan.backward_step(t, first, last, scan.at(scan.given.grad_outputs, (t * scan.batch + first) * width),
                                   width, packed, room);
            scan.end_backward(first, last, room);
        } else {
            for (Index t = 0; t < scan.steps; ++t) scan.forward_step(t, first, last, packed, room);
        }
    };
    share_out(scan.batch, scan.rows_together(), scan.given.threads, packed + scan.packed_size(), scan.temporaries, rows);
}

}  // namespace
