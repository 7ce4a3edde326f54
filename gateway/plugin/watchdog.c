#include "plugin/watchdog.h"

#include <dlfcn.h>

#include "base/log.h"

#define QUIET_NS (1 * NS_PER_S) /* between two lines about one plugin */

static struct {
    uint64_t ticks, ns;
} start;

void watchdog_init(void)
{
    start.ticks = watchdog_ticks();
    start.ns = clock_ns();
}

void watchdog_judge(const struct plugin *plugin, const char *hook, uint64_t ticks)
{
    uint64_t now = clock_ns(), ns = now - start.ns, passed = watchdog_ticks() - start.ticks;
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
