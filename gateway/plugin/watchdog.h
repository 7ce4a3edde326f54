/* Names hooks that hold their worker for too long.
 *
 * Looked at behind every hook, so it must cost next to nothing: a counter of the processor is
 * read, which takes a few instructions, and only when it has gone far the clock is asked. */
#ifndef POSTERN_PLUGIN_WATCHDOG_H
#define POSTERN_PLUGIN_WATCHDOG_H

#include "base/clock.h"
#include "plugin/host.h"

#define WATCHDOG_MS 10

/* Ticks of a counter that goes on by itself, on all cores alike. */
static inline uint64_t watchdog_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
#endif
}

/* Fewer than any such counter makes in WATCHDOG_MS, but for one that is very slow. */
#define WATCHDOG_SUSPECT (WATCHDOG_MS * 20000ull)

/* Main thread, before workers begin: where ticks and time stood together. */
void watchdog_init(void);
/* The time that it took was suspicious. */
void watchdog_judge(const struct plugin *plugin, const char *hook, uint64_t ticks);

/* So too, where only the code is known that ran. */
void watchdog_judge_code(const void *code, const char *what, uint64_t ticks);

/* `began`: the ticks before it. Returns those now, for the next. */
static inline uint64_t watchdog_behind(const struct instance *instance, const char *hook,
                                       uint64_t began)
{
    uint64_t now = watchdog_ticks();
    if (__builtin_expect(now - began > WATCHDOG_SUSPECT, 0))
        watchdog_judge(instance->plugin, hook, now - began);
    return now;
}

static inline void watchdog_behind_code(const void *code, const char *what, uint64_t began)
{
    uint64_t ticks = watchdog_ticks() - began;
    if (__builtin_expect(ticks > WATCHDOG_SUSPECT, 0))
        watchdog_judge_code(code, what, ticks);
}

#endif
