#include "plugin/phases.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>

/* False: the plugin has none for that phase. */
static bool fetch(const struct postern_plugin *def, enum phase phase, struct hook *hook)
{
    switch (phase) {
    case PHASE_REQUEST:
        hook->decide = def->on_request;
        return def->on_request != NULL;
    case PHASE_PREFLIGHT:
        hook->decide = def->on_preflight;
        return def->on_preflight != NULL;
    case PHASE_RESPONSE:
        hook->hear = def->on_response;
        return def->on_response != NULL;
    case PHASE_LOG:
        hook->hear = def->on_log;
        return def->on_log != NULL;
    case PHASE_REQUEST_BODY:
        hook->pass = def->on_request_body;
        return def->on_request_body != NULL;
    case PHASE_RESPONSE_BODY:
        hook->pass = def->on_response_body;
        return def->on_response_body != NULL;
    case PHASES:
        break;
    }
    return false;
}

/* How many hooks of the phase run until that of instance `at` has; none of its own: never. */
static unsigned need(const struct phases *phases, enum phase phase, unsigned at)
{
    if (!phases->instances[at]->plugin->def.on_request)
        return 0;
    for (unsigned i = 0; i < phases->of[phase].count; i++)
        if (phases->of[phase].hooks[i].at == at)
            return i + 1;
    return UINT_MAX;
}

/* Where two want the same place their names decide, so that it never depends on a file. */
static int compare(const void *a, const void *b)
{
    const struct postern_plugin *x = &(*(const struct instance *const *)a)->plugin->def;
    const struct postern_plugin *y = &(*(const struct instance *const *)b)->plugin->def;
    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    return strcmp(x->name, y->name);
}

struct phases *phases_new(const struct instance *const *instances, unsigned count)
{
    assert(count <= PHASES_INSTANCES);
    size_t size = sizeof(struct phases) + count * sizeof(struct instance *) +
                  ((size_t)PHASES * count + 1) * sizeof(struct hook);
    struct phases *phases = mem_zalloc(size);
    if (!phases)
        return NULL;
    phases->instances = (const struct instance **)(phases + 1);
    phases->count = count;
    if (count)
        memcpy(phases->instances, instances, count * sizeof(*instances));
    qsort(phases->instances, count, sizeof(*phases->instances), compare);
    struct hook *next = (struct hook *)(phases->instances + count);
    for (unsigned p = 0; p < PHASES; p++) {
        phases->of[p].hooks = next;
        for (unsigned i = 0; i < count; i++) {
            bool back = p == PHASE_RESPONSE || p == PHASE_RESPONSE_BODY;
            unsigned at = back ? count - 1 - i : i;
            const struct instance *instance = phases->instances[at];
            *next = (struct hook){.self = instance->self, .at = at, .instance = instance};
            if (!fetch(&instance->plugin->def, p, next))
                continue;
            next->need[0] = need(phases, PHASE_REQUEST, at);
            next->need[1] = need(phases, PHASE_PREFLIGHT, at);
            next++;
        }
        phases->of[p].count = (unsigned)(next - phases->of[p].hooks);
    }
    return phases;
}

void phases_free(struct phases *phases)
{
    mem_free(phases);
}
