#include "rate_limit/rate_fields.h"

#include <string.h>

struct text {
    char *p;
};

size_t rate_number(uint64_t n, char out[20])
{
    char digits[20];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    for (size_t i = 0; i < count; i++)
        out[i] = digits[count - 1 - i];
    return count;
}

static void put(struct text *t, const char *s)
{
    size_t n = strlen(s);
    memcpy(t->p, s, n);
    t->p += n;
}

static void put_number(struct text *t, uint64_t n)
{
    t->p += rate_number(n, t->p);
}

size_t rate_name(const struct gcra_window *w, char out[RATE_NAME_MAX])
{
    static const struct {
        uint64_t ms;
        const char *name;
    } units[] = {{86400000, "d"}, {3600000, "h"}, {60000, "m"}, {1000, "s"}, {1, "ms"}};
    struct text t = {out};
    unsigned i = 0;
    while (w->per_ms % units[i].ms)
        i++;
    put_number(&t, w->number);
    put(&t, "/");
    if (w->per_ms != units[i].ms)
        put_number(&t, w->per_ms / units[i].ms);
    put(&t, units[i].name);
    return (size_t)(t.p - out);
}

void rate_fields_set(struct rate_fields *f, const struct gcra *g)
{
    struct text policy = {f->policy};
    for (unsigned i = 0; i < g->count; i++) {
        const struct gcra_window *w = &g->windows[i];
        struct text label = {f->label[i]};
        put(&label, i ? ", \"" : "\"");
        label.p += rate_name(w, label.p);
        put(&label, "\"");
        f->label_n[i] = (size_t)(label.p - f->label[i]);
        memcpy(policy.p, f->label[i], f->label_n[i]);
        policy.p += f->label_n[i];
        put(&policy, ";q=");
        put_number(&policy, w->number);
        if (w->per_ms % 1000 == 0) { /* it takes whole seconds, and may be left out */
            put(&policy, ";w=");
            put_number(&policy, w->per_ms / 1000);
        }
    }
    f->policy_n = (size_t)(policy.p - f->policy);
}

size_t rate_state(const struct rate_fields *f, const struct gcra *g,
                  const struct gcra_verdict *v, char out[RATE_STATE_MAX])
{
    struct text t = {out};
    for (unsigned i = 0; i < g->count; i++) {
        const struct gcra_window *w = &g->windows[i];
        memcpy(t.p, f->label[i], f->label_n[i]);
        t.p += f->label_n[i];
        put(&t, ";r=");
        put_number(&t, gcra_left(w, v->ahead[i]));
        put(&t, ";t=");
        put_number(&t, gcra_seconds(gcra_more(w, v->ahead[i])));
    }
    return (size_t)(t.p - out);
}

unsigned rate_tightest(const struct gcra *g, const struct gcra_verdict *v)
{
    unsigned tightest = 0;
    if (!v->allowed)
        return v->met;
    for (unsigned i = 1; i < g->count; i++)
        if (gcra_left(&g->windows[i], v->ahead[i]) <
            gcra_left(&g->windows[tightest], v->ahead[tightest]))
            tightest = i;
    return tightest;
}
