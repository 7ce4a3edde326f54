#include "plugin/watchdog.h"

#include <dlfcn.h>

#include "base/log.h"

#define QUIET_NS (1 * NS_PER_S) /* between two lines about one plugin */

static struct moment {
    uint64_t ticks, ns;
} start;

/* Both at the same time: who is put aside between the two looks again. */
static struct moment moment_now(void)
{
    struct moment now = {0, 0};
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 4; i++) {
        uint64_t before = watchdog_ticks(), ns = clock_ns(), after = watchdog_ticks();
        if (after - before >= least)
            continue;
        least = after - before;
        now = (struct moment){before, ns};
    }
    return now;
}

void watchdog_init(void)
{
    start = moment_now();
}

void watchdog_judge(const struct plugin *plugin, const char *hook, uint64_t ticks)
{
    struct moment end = moment_now();
    uint64_t now = end.ns, ns = end.ns - start.ns, passed = end.ticks - start.ticks;
    if (!passed)
        return;
    uint64_t ms = (uint64_t)((unsigned __int128)ticks * ns / passed / NS_PER_MS);
    if (ms < WATCHDOG_MS)
        return;
    /* One worker tells for all: where one hook is slow, it is slow everywhere. */
    _Atomic uint64_t *told = &((struct plugin *)plugin)->told_slow;
    uint64_t before = atomic_load_explicit(told, memory_order_relaxed);
    if ((before && now - before < QUIET_NS) ||
        !atomic_compare_exchange_strong(told, &before, now))
        return;
    log_warn("plugin %s: its %s held a worker for %llu ms; nothing else was served meanwhile",
             plugin->def.name, hook, (unsigned long long)ms);
}

void watchdog_judge_code(const void *code, const char *what, uint64_t ticks)
{
    Dl_info info;
    const struct plugin *plugin =
        dladdr(code, &info) && info.dli_fname ? host_loaded(info.dli_fname) : NULL;
    if (plugin)
        watchdog_judge(plugin, what, ticks);
}
