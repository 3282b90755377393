// The loop of a recurrence over a whole sequence.
//
// The rows of a batch are independent, so every thread runs its own rows through all steps, without a barrier. A
// recurrence is a class with `forward_step` and `backward_step` for a range of rows; `buffer` is the memory of one
// thread, `packed` the packed weights.

#pragma once

#include "native/vectors.hpp"

namespace {

// Calls work(first, last, buffer) for all rows, `together` rows per call, on all threads.
template <class Real, class Work>
void for_all_rows(Index batch, Index together, Index threads, Real* buffers, Index buffer_size, Work work) {
    const Index chunks = (batch + together - 1) / together;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (Index thread = 0; thread < threads; ++thread)
        for (Index chunk = thread; chunk < chunks; chunk += threads)
            work(chunk * together, std::min(batch, (chunk + 1) * together), buffers + thread * buffer_size);
}

// The number of rows that a thread runs through all steps together: few, so that they stay in the cache. If the weights
// do not fit into the cache, all rows of the thread, so that the weights are read once per step.
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
    const auto rows = [&](Index first, Index last, Real* buffer) {
        if (backward) {
            const Index width = scan.outputs_width();
            scan.begin_backward(first, last, buffer);
            for (Index t = scan.steps - 1; t >= 0; --t)
                scan.backward_step(t, first, last, scan.at(scan.given.grad_outputs, (t * scan.batch + first) * width),
                                   width, packed, buffer);
            scan.end_backward(first, last, buffer);
        } else {
            for (Index t = 0; t < scan.steps; ++t) scan.forward_step(t, first, last, packed, buffer);
        }
    };
    for_all_rows(scan.batch, scan.rows_together(), scan.given.threads, packed + scan.packed_size(), scan.temporaries,
                 rows);
}

}  // namespace
