/* Read, copy, triad and write over arrays of floats by OpenMP. Prints GB/s of each: of the fastest pass and the median.
   cc -O3 -march=native -fopenmp; arguments: MiB of each array, passes. A pass goes over an eighth of the arrays, the next
   one over the next, and bytes are counted as the workflow counts them. */
#define _GNU_SOURCE
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { PARTS = 8 };
typedef float vector __attribute__((vector_size(64)));
typedef uint64_t words __attribute__((vector_size(64)));

static int by_size(const void *one, const void *other) {
    double difference = *(const double *)one - *(const double *)other;
    return difference < 0 ? -1 : difference > 0;
}

static inline void past_the_caches(vector *to, vector value) {
#if defined(__AVX512F__)
    _mm512_stream_ps((float *)to, (__m512)value);
#elif defined(__AVX__)
    _mm256_stream_ps((float *)to, ((__m256 *)&value)[0]);
    _mm256_stream_ps((float *)to + 8, ((__m256 *)&value)[1]);
#elif defined(__x86_64__)
    for (int i = 0; i < 4; i++) _mm_stream_ps((float *)to + 4 * i, ((__m128 *)&value)[i]);
#else
    *to = value;
#endif
}

static vector *array(size_t bytes) {
    void *room = aligned_alloc(2 << 20, bytes);
    if (!room) exit(1);
    madvise(room, bytes, MADV_HUGEPAGE);
    return room;
}

int main(int count, char **given) {
    size_t bytes = (size_t)(count > 1 ? atol(given[1]) : 1024) << 20, n = bytes / sizeof(vector);
    int passes = count > 2 ? atoi(given[2]) : 100;
    vector *a = array(bytes), *b = array(bytes), *c = array(bytes), three = {0};
    three += 3;
    for (size_t first = 0; first < n; first += n / PARTS) {
#pragma omp parallel for schedule(static)
        for (size_t i = first; i < first + n / PARTS; i++) a[i] = three + 1, b[i] = three + 2, c[i] = three;
    }
    const char *names[] = {"read", "copy", "triad", "write"};
    double touched[] = {1, 2, 3, 1}, *times = malloc(passes * sizeof(double));
    uint64_t sum = 0;
    size_t part = n / PARTS;
    for (int mix = 0; mix < 4; mix++) {
        double best = 0, median = 0;
        for (int streaming = 0; streaming < (mix ? 2 : 1); streaming++) {
            for (int pass = 0; pass < passes; pass++) {
                size_t first = pass % PARTS * part, last = first + part;
                vector *from = pass / PARTS % 2 ? b : a;
                double begin = omp_get_wtime();
                if (mix == 0) {
#pragma omp parallel reduction(+ : sum)
                    {
                        words s = {0}, t = {0}, u = {0}, v = {0}, *x = (words *)from;
#pragma omp for schedule(static) nowait
                        for (size_t i = first / 4; i < last / 4; i++)
                            s += x[4 * i], t += x[4 * i + 1], u += x[4 * i + 2], v += x[4 * i + 3];
                        s += t + u + v;
                        for (int lane = 0; lane < 8; lane++) sum += s[lane];
                    }
                } else if (streaming) {
#pragma omp parallel for schedule(static)
                    for (size_t i = first; i < last; i++)
                        past_the_caches(c + i, mix == 1 ? from[i] : mix == 2 ? a[i] + three * b[i] : three);
                } else {
#pragma omp parallel for schedule(static)
                    for (size_t i = first; i < last; i++) c[i] = mix == 1 ? from[i] : mix == 2 ? a[i] + three * b[i] : three;
                }
                times[pass] = omp_get_wtime() - begin;
            }
            qsort(times, passes, sizeof(double), by_size);
            double gigabytes = touched[mix] * part * sizeof(vector) / 1e9;
            if (gigabytes / times[0] > best) best = gigabytes / times[0];
            if (gigabytes / times[passes / 2] > median) median = gigabytes / times[passes / 2];
        }
        printf("%s %.2f %.2f\n", names[mix], best, median);
    }
    fprintf(stderr, "%g\n", (double)sum + c[n / 2][0]);
    return 0;
}
