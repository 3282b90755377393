// The exponential gates of mLSTM, one step after another; see gyral/ops/stabilized_gates/naive.py.

#include "native/rows.hpp"

namespace stabilized_gates {

// Pointers are to Real unless another type is given, and null for absent tensors.
struct Arguments {
    Index steps, batch, heads;  // T, B, H
    double scale;
    void* gates;                // (T, B, 2 H)
    void* first;                // (B, H)
    void* lengths;              // (B) Index
    void* starts;               // (T, B) bool
    Index threads;
    void* workspace;
    void* decay;                // (T, B, H)
    void* write;
    void* least;
    void* stabilizers;
    // of the backward pass
    void* grad_decay;           // as those without grad_; null stands for zeros
    void* grad_write;
    void* grad_least;
    void* grad_stabilizers;
    void* grad_gates;
    void* grad_first;           // (B, H) zeros; while the steps run, the gradient of the stabilizer after a step
};

constexpr double NEVER = -1e30;  // the stabilizer before the first step, as in naive.py
constexpr double LARGEST = 80;   // exponent of e^{-m}, as there

template <class Real> inline Real power(Real x) { return std::exp(x); }

template <class Real> struct Scan {
    const Arguments& given;
    const Index heads = given.heads;

    struct Step {
        Real write, forget, before, kept, stabilizer;  // i, f, m before it, log σ(f) + m before it, m
    };
    Step step(const Place& at, Index h) const {
        const Real* gates = at.of<Real>(given.gates, 2 * heads);
        const Real* last = at.time ? at.of<Real>(given.stabilizers, heads) - at.batch * heads : at.row_of<Real>(given.first, heads);
        Step now{gates[h], gates[heads + h], at.is_start ? Real(NEVER) : last[h]};
        now.kept = std::min(now.forget, Real(0)) - std::log1p(power(-std::fabs(now.forget))) + now.before;
        now.stabilizer = now.kept > now.write || now.kept != now.kept ? now.kept : now.write;  // a NaN stays a NaN
        return now;
    }
    bool has_before(const Step& now) const { return now.before > Real(NEVER / 2); }

    void forward_step(const Place& at) const {
        Real *decay = at.of<Real>(given.decay, heads), *write = at.of<Real>(given.write, heads);
        Real *least = at.of<Real>(given.least, heads), *stabilizers = at.of<Real>(given.stabilizers, heads);
        for (Index h = 0; h < heads; ++h) {
            if (at.has_ended) {
                decay[h] = write[h] = least[h] = stabilizers[h] = 0;
                continue;
            }
            const Step now = step(at, h);
            decay[h] = has_before(now) ? now.kept - now.stabilizer : Real(0);
            write[h] = power(now.write - now.stabilizer) * Real(given.scale);
            least[h] = power(std::min(-now.stabilizer, Real(LARGEST)));
            stabilizers[h] = now.stabilizer;
        }
    }

    Real gradient(void* tensor, const Place& at, Index h) const { return tensor ? at.of<Real>(tensor, heads)[h] : Real(0); }
    void backward_step(const Place& at) const {
        Real *grad = at.row_of<Real>(given.grad_first, heads), *to = at.of<Real>(given.grad_gates, 2 * heads);
        for (Index h = 0; h < heads; ++h) {
            if (at.has_ended) {
                to[h] = to[heads + h] = 0;
                continue;
            }
            const Step now = step(at, h);
            const Real decay = has_before(now) ? gradient(given.grad_decay, at, h) : Real(0);
            const Real write = gradient(given.grad_write, at, h) * at.of<Real>(given.write, heads)[h];
            const Real least = -now.stabilizer > Real(LARGEST)
                                   ? Real(0)
                                   : gradient(given.grad_least, at, h) * at.of<Real>(given.least, heads)[h];
            const Real total = grad[h] + gradient(given.grad_stabilizers, at, h) - decay - write - least;
            const Real share = at.is_start || now.kept < now.write ? Real(0) : now.kept == now.write ? Real(0.5) : Real(1);
            // a share of zero passes nothing, not even what is no number
            const Real kept = decay + (share == 0 ? Real(0) : share * total);
            to[h] = write + (share == 1 ? Real(0) : (1 - share) * total);
            to[heads + h] = kept * sigmoid(-now.forget);
            grad[h] = at.is_start ? Real(0) : kept;
        }
    }
};

}  // namespace stabilized_gates

extern "C" {
Index stabilized_gates_arguments_size() { return sizeof(stabilized_gates::Arguments); }
Index stabilized_gates_block() { return 1; }
Index stabilized_gates_workspace(const stabilized_gates::Arguments*, Index) { return 0; }
void stabilized_gates_run(const stabilized_gates::Arguments* given, Index is_double, Index backward) {
    is_double ? for_all_places(*given, backward, stabilized_gates::Scan<double>{*given})
              : for_all_places(*given, backward, stabilized_gates::Scan<float>{*given});
}
}
