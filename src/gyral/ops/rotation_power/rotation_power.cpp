// Real powers of rotations R (N, N), forward and backward; see gyral/ops/rotation_power/__init__.py.
//
// The skew part of the Cayley transform of R is S = Q T Qᵀ with a tridiagonal T: Householder reflections. The even and odd
// coordinates of T make it [0 -Bᵀ; B 0] with a bidiagonal B, whose singular values tan φ and vectors v, u span the planes of
// R: S v = tan φ u, S u = -tan φ v, and R turns v by 2 φ towards u. The power turns it by 2 λ φ. An odd N gets one further
// coordinate, of zeros. In the basis of all v, then all u, a derivative is entry by entry: a block of two by two numbers,
// from plane k to plane j, is z -> a z + b conj(z) for the complex number z of v and u, and the derivative multiplies a by
// the divided difference of exp(2 i λ φ) over i tan φ between the planes, and b by that between plane j and plane -k.

#include "native/matrices.hpp"

namespace rotation_power {

// Pointers are to Real. n is N rounded up to an even number.
struct Arguments {
    Index batch, size;    // B matrices, N
    double exponent;      // λ
    void* rotation;       // (B, N, N)
    void* powered;        // (B, N, N)
    void* vectors;        // (B, n, N): rows are all v, then all u
    void* half_angles;    // (B, n / 2)
    void* inverse;        // (B, N, N), of R + I
    Index threads;
    void* workspace;
    void* grad_powered;   // (B, N, N)
    void* grad_rotation;  // (B, N, N)
};

namespace {

// c and s with c f + s g = r and c g - s f = 0; returns r.
template <class Real> inline Real make_rotation(Real f, Real g, Real& c, Real& s) {
    c = 1, s = 0;
    if (g == 0) return f;
    Real scale = 1;
    if (std::max(std::fabs(f), std::fabs(g)) < Real(1e-12)) {  // their squares may underflow
        scale = std::max(std::fabs(f), std::fabs(g));
        f /= scale, g /= scale;
    }
    const Real r = std::sqrt(f * f + g * g), inverse = 1 / r;
    c = f * inverse, s = g * inverse;
    return r * scale;
}

// Rows x and y become c x + s y and c y - s x.
template <class Real> inline void rotate_rows(Real* __restrict x, Real* __restrict y, Index width, Real c, Real s) {
    for (Index i = 0; i < width; i += LANES<Real>) {
        const Vector<Real> a = load(x + i), b = load(y + i);
        store<Real>(x + i, c * a + s * b);
        store<Real>(y + i, c * b - s * a);
    }
}

// The smaller singular value of [f g; 0 h], of positive numbers.
template <class Real> inline Real smaller_singular_value(Real f, Real g, Real h) {
    const Real larger = (std::sqrt((f + h) * (f + h) + g * g) + std::sqrt((f - h) * (f - h) + g * g)) / 2;
    return larger == 0 ? Real(0) : f / larger * h;
}

template <class Real> struct Power {
    const Arguments& given;
    const Index N = given.size, planes = (N + 1) / 2, n = 2 * planes;
    const Index W = padded<Real>(n), H = padded<Real>(planes);  // of padded rows

    struct Buffers {
        Real *one, *two, *three, *four, *q, *turned;  // (n, W)
        Real *left, *right;                           // (planes, H): rows are singular vectors
        Real *diagonal, *above, *betas, *sums, *way;  // (W)
        Real *t, *cosine, *half_c, *half_s;           // (H), of planes: tan φ, cos φ, exp(i λ φ)
    };
    template <class Take> Buffers allocate(const Take& take) const {
        Buffers b{};
        for (Real** matrix : {&b.one, &b.two, &b.three, &b.four, &b.q, &b.turned}) *matrix = take(n * W);
        for (Real** matrix : {&b.left, &b.right}) *matrix = take(planes * H);
        for (Real** vector : {&b.diagonal, &b.above, &b.betas, &b.sums, &b.way}) *vector = take(W);
        for (Real** vector : {&b.t, &b.cosine, &b.half_c, &b.half_s}) *vector = take(H);
        return b;
    }
    Index workspace() const {
        Index sum = 0;
        allocate([&](Index count) { return sum += padded<float>(count), static_cast<Real*>(nullptr); });
        return sum;
    }

    Real* of(void* base, Index item, Index count) const { return static_cast<Real*>(base) + item * count; }
    void read(const Real* from, Index rows, Real* to) const {
        for (Index i = 0; i < rows; ++i) {
            std::copy_n(from + i * N, N, to + i * W);
            std::fill(to + i * W + N, to + (i + 1) * W, Real(0));
        }
    }
    void write(const Real* from, Index rows, Real* to) const {
        for (Index i = 0; i < rows; ++i) std::copy_n(from + i * W, N, to + i * N);
    }

    // Rows i of a matrix += a[i] x + b[i] y, from column `begin` on.
    void add_rank_two(Real* matrix, Index count, Index begin, const Real* a, const Real* x, const Real* b,
                      const Real* y) const {
        const Index width = W;
        const auto some_rows = [=](auto rows, Real* to, const Real* first, const Real* second) {
            Real one[rows], two[rows];
            for (int i = 0; i < rows; ++i) one[i] = first[i], two[i] = second[i];
            for (Index j = begin; j < width; j += LANES<Real>) {
                const Vector<Real> left = load(x + j), right = load(y + j);
                for (int i = 0; i < rows; ++i) {
                    Real* place = to + i * width + j;
                    store<Real>(place, load(place) + (one[i] * left + two[i] * right));
                }
            }
        };
        Index i = 0;
        for (; i + 4 <= count; i += 4) some_rows(std::integral_constant<int, 4>(), matrix + i * width, a + i, b + i);
        for (; i < count; ++i) some_rows(std::integral_constant<int, 1>(), matrix + i * width, a + i, b + i);
    }

    static void scale(Real* row, Index width, Real factor) {
        for (Index j = 0; j < width; j += LANES<Real>) store<Real>(row + j, factor * load(row + j));
    }
    // Row k becomes that of an inverse whose columns before k are done, given the factor of row k in it.
    void eliminate(Real* row, const Real* pivot, Index k) const {
        const Real factor = std::exchange(row[k], Real(0));
        for (Index j = 0; j < W; j += LANES<Real>) store<Real>(row + j, load(row + j) - factor * load(pivot + j));
    }

    // The matrix (N, N) becomes its inverse, by elimination of two columns at once with the largest pivot of each.
    // `order`: the pivots' rows; `one` and `two` (N): the factors of a column.
    void invert(Real* matrix, Real* order, Real* one, Real* two) const {
        const auto take_pivot = [&](Index k, const auto& value) {
            Index largest = k;
            Real most = std::fabs(value(k));
            for (Index i = k + 1; i < N; ++i)
                if (const Real size = std::fabs(value(i)); size > most) largest = i, most = size;
            order[k] = Real(largest);
            if (largest != k) std::swap_ranges(matrix + k * W, matrix + (k + 1) * W, matrix + largest * W);
        };
        const auto normalize = [&](Index k) {
            Real* row = matrix + k * W;
            const Real inverse = 1 / std::exchange(row[k], Real(1));
            scale(row, W, inverse);
        };
        Index k = 0;
        for (; k + 2 <= N; k += 2) {
            Real *own = matrix + k * W, *next = own + W;
            take_pivot(k, [&](Index i) { return matrix[i * W + k]; });
            normalize(k);
            take_pivot(k + 1, [&](Index i) { return matrix[i * W + k + 1] - matrix[i * W + k] * own[k + 1]; });
            eliminate(next, own, k);
            normalize(k + 1);
            eliminate(own, next, k + 1);
            for (Index i = 0; i < N; ++i) {
                if (i == k || i == k + 1) continue;
                one[i] = -std::exchange(matrix[i * W + k], Real(0));
                two[i] = -std::exchange(matrix[i * W + k + 1], Real(0));
            }
            add_rank_two(matrix, k, 0, one, own, two, next);
            add_rank_two(next + W, N - k - 2, 0, one + k + 2, own, two + k + 2, next);
        }
        if (k < N) {
            take_pivot(k, [&](Index i) { return matrix[i * W + k]; });
            normalize(k);
            for (Index i = 0; i < k; ++i) eliminate(matrix + i * W, matrix + k * W, k);
        }
        for (k = N - 1; k >= 0; --k)
            if (const Index other = Index(order[k]); other != k)
                for (Index i = 0; i < N; ++i) std::swap(matrix[i * W + k], matrix[i * W + other]);
    }
    // The skew-symmetric matrix becomes tridiagonal, of which `below` gets what is below the diagonal. Row k of
    // `reflections` is the vector x of the k-th reflection I - beta x xᵀ, with zeros up to column k.
    void make_tridiagonal(Real* matrix, Real* reflections, Real* betas, Real* below, Real* sums, Real* back) const {
        const Real least = std::numeric_limits<Real>::min() * Real(1e8);
        for (Index k = 0; k + 2 < n; ++k) {
            Real* x = reflections + k * W;
            const Real* row = matrix + k * W;
            std::fill_n(x, k + 1, Real(0));
            Real rest = 0;
            for (Index i = k + 1; i < n; ++i) x[i] = -row[i];
            std::fill(x + n, x + W, Real(0));
            rest = dot(x + k + 2, x + k + 2, n - k - 2);
            const Real first = x[k + 1];
            betas[k] = 0, below[k] = first;
            if (!(rest > least)) continue;
            const Real size = std::sqrt(first * first + rest), end = first > 0 ? -size : size;
            x[k + 1] = first - end, below[k] = end;
            betas[k] = 1 / (end * end - end * first);
            // A + x pᵀ - p xᵀ with p = beta A x = -beta Aᵀ x
            const Index begin = (k + 1) / LANES<Real> * LANES<Real>, count = n - k - 1;
            Real* rows = matrix + (k + 1) * W;
            std::fill_n(sums, W, Real(0));
            for (Index i = 0; i < count; ++i) {
                const Real factor = -betas[k] * x[k + 1 + i];
                for (Index j = begin; j < W; j += LANES<Real>)
                    store<Real>(sums + j, load(sums + j) + factor * load(rows + i * W + j));
            }
            std::fill(sums + begin, sums + k + 1, Real(0));
            for (Index i = 0; i < count; ++i) back[i] = -sums[k + 1 + i];
            add_rank_two(rows, count, begin, x + k + 1, sums, back, x);
        }
        below[n - 2] = -matrix[(n - 2) * W + n - 1];
    }

    // Singular values and vectors of a bidiagonal matrix by QR steps with implicit shifts (Golub and Reinsch 1970), and
    // without a shift where a singular value is zero (Demmel and Kahan 1990). Returns whether it found them.
    bool diagonalize(Real* d, Real* e, Real* left, Real* right) const {
        const Real epsilon = std::numeric_limits<Real>::epsilon();
        Real norm = 0;
        for (Index i = 0; i < planes; ++i) norm = std::max({norm, std::fabs(d[i]), i + 1 < planes ? std::fabs(e[i]) : Real(0)});
        for (Real* vectors : {left, right}) {
            std::fill_n(vectors, planes * H, Real(0));
            for (Index i = 0; i < planes; ++i) vectors[i * H + i] = 1;
        }
        const auto is_small = [&](Index i) {
            return std::fabs(e[i]) <= epsilon * std::max(std::fabs(d[i]) + std::fabs(d[i + 1]), Real(0.25) * norm);
        };
        const auto turn = [&](Index i, Real c, Real s, Real* vectors) {
            rotate_rows(vectors + i * H, vectors + (i + 1) * H, H, c, s);
        };
        Index last = planes - 1;
        for (Index sweeps = 60 * planes; last > 0;) {
            if (is_small(last - 1)) {
                e[--last] = 0;
                continue;
            }
            if (--sweeps < 0) return false;
            Index first = last - 1;
            while (first > 0 && !is_small(first - 1)) --first;
            if (first > 0) e[first - 1] = 0;
            Real least = std::fabs(d[first]), most = least;
            for (Index i = first + 1; i <= last; ++i)
                least = std::min(least, std::fabs(d[i])), most = std::max(most, std::fabs(d[i]));
            const Real begin = std::fabs(d[first]);
            Real shift = smaller_singular_value(std::fabs(d[last - 1]), std::fabs(e[last - 1]), std::fabs(d[last]));
            if (least <= epsilon * most || (shift / begin) * (shift / begin) < epsilon) shift = 0;
            Real c, s, other_c = 1, other_s = 0;
            if (shift == 0) {
                c = 1, s = 0;
                for (Index i = first; i < last; ++i) {
                    const Real r = make_rotation(d[i] * c, e[i], c, s);
                    if (i > first) e[i - 1] = other_s * r;
                    d[i] = make_rotation(other_c * r, d[i + 1] * s, other_c, other_s);
                    turn(i, c, s, right), turn(i, other_c, other_s, left);
                }
                const Real h = d[last] * c;
                d[last] = h * other_c, e[last - 1] = h * other_s;
                continue;
            }
            Real f = (begin - shift) * (std::copysign(Real(1), d[first]) + shift / d[first]), g = e[first];
            for (Index i = first; i < last; ++i) {
                const Real r = make_rotation(f, g, c, s);
                if (i > first) e[i - 1] = r;
                f = c * d[i] + s * e[i], e[i] = c * e[i] - s * d[i];
                g = s * d[i + 1], d[i + 1] = c * d[i + 1];
                d[i] = make_rotation(f, g, other_c, other_s);
                f = other_c * e[i] + other_s * d[i + 1], d[i + 1] = other_c * d[i + 1] - other_s * e[i];
                if (i + 1 < last) g = other_s * e[i + 1], e[i + 1] = other_c * e[i + 1];
                turn(i, c, s, right), turn(i, other_c, other_s, left);
            }
            e[last - 1] = f;
        }
        return true;
    }

    void forward(Index item, const Buffers& b) const {
        Real *skew = b.two, *reflections = b.three, *columns = b.four;
        read(of(given.rotation, item, N * N), N, b.one);
        for (Index i = 0; i < N; ++i) b.one[i * W + i] += 1;
        invert(b.one, b.way, b.sums, b.betas);
        write(b.one, N, of(given.inverse, item, N * N));
        transpose(N, N, b.one, W, b.turned, W);
        bool is_finite = true;
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < W; ++j) {
                const Real value = i < N && j < N ? b.turned[i * W + j] - b.one[i * W + j] : Real(0);
                skew[i * W + j] = value;
                is_finite &= std::fabs(value) < std::numeric_limits<Real>::infinity();
            }
        Real *powered = of(given.powered, item, N * N), *half_angles = of(given.half_angles, item, planes);
        Real* vectors = of(given.vectors, item, n * N);
        if (is_finite) {
            make_tridiagonal(skew, reflections, b.betas, b.way, b.sums, b.diagonal);
            for (Index i = 0; i < planes; ++i) {
                b.diagonal[i] = b.way[2 * i];
                if (i + 1 < planes) b.above[i] = -b.way[2 * i + 1];
            }
            is_finite = diagonalize(b.diagonal, b.above, b.left, b.right);
        }
        if (!is_finite) {
            const Real nan = std::numeric_limits<Real>::quiet_NaN();
            std::fill_n(powered, N * N, nan), std::fill_n(vectors, n * N, nan), std::fill_n(half_angles, planes, nan);
            return;
        }
        // the columns are all v, then all u; their even and odd coordinates, and then all reflections
        std::fill_n(columns, n * W, Real(0));
        for (Index k = 0; k < planes; ++k)
            for (Index i = 0; i < planes; ++i) {
                columns[2 * i * W + k] = b.right[k * H + i];
                columns[(2 * i + 1) * W + planes + k] = b.left[k * H + i];
            }
        for (Index k = n - 3; k >= 0; --k) {
            if (b.betas[k] == 0) continue;
            const Real* x = reflections + k * W + k + 1;
            transpose_times(columns + (k + 1) * W, n - k - 1, W, x, b.sums);
            for (Index i = 0; i < n - k - 1; ++i) {
                const Real factor = b.betas[k] * x[i];
                Real* row = columns + (k + 1 + i) * W;
                for (Index j = 0; j < W; j += LANES<Real>) store<Real>(row + j, load(row + j) - factor * load(b.sums + j));
            }
        }
        transpose(N, n, columns, W, b.q, W);
        write(b.q, n, vectors);
        for (Index k = 0; k < planes; ++k) half_angles[k] = std::atan(b.diagonal[k]);
        const Real exponent = given.exponent;
        for (Index k = 0; k < planes; ++k) {
            const Real c = std::cos(2 * exponent * half_angles[k]), s = std::sin(2 * exponent * half_angles[k]);
            const Real *v = b.q + k * W, *u = v + planes * W;
            Real *to_v = b.one + k * W, *to_u = to_v + planes * W;
            for (Index j = 0; j < W; j += LANES<Real>) {
                store<Real>(to_v + j, c * load(v + j) - s * load(u + j));
                store<Real>(to_u + j, c * load(u + j) + s * load(v + j));
            }
        }
        product<true>(N, W, n, b.q, W, b.one, W, b.two, W, false);
        write(b.two, N, powered);
    }

    // sin(x) / x for |x| < 1/2
    static Vector<Real> sinc(Vector<Real> x) {
        const Vector<Real> y = x * x;
        Vector<Real> sum = Vector<Real>{} + Real(1.0 / 6227020800);
        for (Real term : {Real(-1.0 / 39916800), Real(1.0 / 362880), Real(-1.0 / 5040), Real(1.0 / 120), Real(-1.0 / 6), Real(1)})
            sum = sum * y + term;
        return sum;
    }
    static Vector<Real> magnitude(Vector<Real> x) { return x < 0 ? -x : x; }

    // The divided differences between plane j and planes k, or the planes k that turn the other way, without their factors
    // of size 1: 2 cos φ_j cos φ_k sin(λ δ) / sin δ with δ = φ_j - φ_k.
    Vector<Real> difference(const Buffers& b, Index j, Index k, Real sign) const {
        const Real exponent = given.exponent;
        const Vector<Real> zero = {}, one = zero + 1;
        const Vector<Real> delta = b.diagonal[j] - sign * load(b.diagonal + k), far = exponent * delta;
        const auto is_near = magnitude(delta) < Real(0.5), is_flat = magnitude(far) < Real(0.5);
        const Vector<Real> sine = b.half_s[j] * load(b.half_c + k) - sign * b.half_c[j] * load(b.half_s + k);  // sin(λ δ)
        const Vector<Real> part = is_flat ? exponent * sinc(is_flat ? far : zero) : sine / (is_flat ? one : delta);
        const Vector<Real> near = b.cosine[j] * load(b.cosine + k) * part / sinc(is_near ? delta : zero);
        const Vector<Real> apart = part * delta / (is_near ? one : b.t[j] - sign * load(b.t + k));
        return 2 * (is_near ? near : apart);
    }

    void differentiate(const Buffers& b, Real* gradient) const {
        for (Index j = 0; j < planes; ++j)
            for_registers<Real>(planes, [&](Index k, Index count) {
                Real *to_vv = gradient + j * W + k, *to_vu = to_vv + planes, *to_uv = to_vv + planes * W, *to_uu = to_uv + planes;
                const Vector<Real> vv = load_first(to_vv, count), vu = load_first(to_vu, count);
                const Vector<Real> uv = load_first(to_uv, count), uu = load_first(to_uu, count);
                const Vector<Real> same = difference(b, j, k, 1), other = difference(b, j, k, -1);
                const Vector<Real> cosine = load(b.half_c + k), sine = load(b.half_s + k);
                const Vector<Real> cc = b.half_c[j] * cosine, ss = b.half_s[j] * sine;
                const Vector<Real> sc = b.half_s[j] * cosine, cs = b.half_c[j] * sine;
                // the conjugates of exp(i λ (φ_j + φ_k)) and of exp(i λ (φ_j - φ_k)), times the differences
                const Vector<Real> re = same * (cc - ss), im = -same * (sc + cs);
                const Vector<Real> other_re = other * (cc + ss), other_im = -other * (sc - cs);
                const Vector<Real> a = (vv + uu) / 2, ai = (uv - vu) / 2, z = (vv - uu) / 2, zi = (uv + vu) / 2;
                const Vector<Real> to_a = re * a - im * ai, to_ai = re * ai + im * a;
                const Vector<Real> to_z = other_re * z - other_im * zi, to_zi = other_re * zi + other_im * z;
                store_first<Real>(to_vv, count, to_a + to_z), store_first<Real>(to_uu, count, to_a - to_z);
                store_first<Real>(to_uv, count, to_ai + to_zi), store_first<Real>(to_vu, count, to_zi - to_ai);
            });
    }

    void backward(Index item, const Buffers& b) const {
        const Real exponent = given.exponent, *angles = of(given.half_angles, item, planes);
        for (Index k = 0; k < H; ++k) {
            const Real angle = k < planes ? angles[k] : Real(0);
            b.diagonal[k] = angle;
            b.cosine[k] = std::cos(angle), b.t[k] = std::tan(angle);
            b.half_c[k] = std::cos(exponent * angle), b.half_s[k] = std::sin(exponent * angle);
        }
        read(of(given.vectors, item, n * N), n, b.q);
        read(of(given.grad_powered, item, N * N), N, b.one);
        product(n, W, N, b.q, W, b.one, W, b.two, W, false);
        transpose(n, N, b.q, W, b.turned, W);
        product(n, W, N, b.two, W, b.turned, W, b.three, W, false);
        differentiate(b, b.three);
        product(n, W, n, b.three, W, b.q, W, b.two, W, false);
        product<true>(N, W, n, b.q, W, b.two, W, b.one, W, false);  // the gradient of S
        transpose(N, N, b.one, W, b.two, W);
        for (Index i = 0; i < N * W; i += LANES<Real>) store<Real>(b.two + i, load(b.one + i) - load(b.two + i));
        read(of(given.inverse, item, N * N), N, b.three);
        transpose(N, N, b.three, W, b.turned, W);
        product(N, W, N, b.two, W, b.turned, W, b.one, W, false);
        product<true>(N, W, N, b.three, W, b.one, W, b.two, W, false);
        write(b.two, N, of(given.grad_rotation, item, N * N));
    }
};

template <class Real> void run(const Arguments& given, bool backward) {
    const Power<Real> power{given};
    const Index size = power.workspace();
#pragma omp parallel for num_threads(given.threads) schedule(static)
    for (Index thread = 0; thread < given.threads; ++thread) {
        Real* own = static_cast<Real*>(given.workspace) + thread * size;
        const auto b = power.allocate([&](Index count) { return std::exchange(own, own + padded<float>(count)); });
        for (Index item = thread; item < given.batch; item += given.threads)
            backward ? power.backward(item, b) : power.forward(item, b);
    }
}

}  // namespace
}  // namespace rotation_power

extern "C" {
Index rotation_power_arguments_size() { return sizeof(rotation_power::Arguments); }
Index rotation_power_block() { return 1; }  // matrices that are computed together
Index rotation_power_workspace(const rotation_power::Arguments* given, Index is_double) {
    return given->threads * (is_double ? rotation_power::Power<double>{*given}.workspace()
                                       : rotation_power::Power<float>{*given}.workspace());
}
void rotation_power_run(const rotation_power::Arguments* given, Index is_double, Index backward) {
    is_double ? rotation_power::run<double>(*given, backward) : rotation_power::run<float>(*given, backward);
}
}
