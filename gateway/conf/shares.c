/* split: one route's requests, shared out among upstreams by weight. */
#include "conf/load.h"

static void share_compile(struct load *load, const struct value *name,
                          const struct value *weight, struct conf_route *route)
{
    uint64_t number = 0;
    struct conf_share *share = &route->split.shares[route->split.count];
    if (str_to_u64(str_of(weight->text), 1000, &number))
        load_fault(load, weight->line, "split.%s is %s, expected a weight from 0 to 1000",
                   name->text, weight->text[0] ? weight->text : "empty");
    for (size_t i = 0; i < route->split.count; i++)
        if (strcmp(route->split.shares[i].upstream, name->text) == 0) {
            load_fault(load, name->line, "split has upstream \"%s\" twice, expected once",
                       name->text);
            return;
        }
    share->upstream = load_copy(load, str_of(name->text));
    share->weight = (uint32_t)number;
    share->line = name->line;
    route->split.count += share->upstream != NULL;
    route->split.total += share->weight;
}

void shares_compile(struct load *load, cfg_t *sec, struct conf_route *route)
{
    size_t count = value_count(sec, GRAMMAR_PAIRS) / 2, faults = load->faults->count;
    route->action = ACTION_SPLIT;
    route->split.sticky = HASH_NONE;
    route->split.index = load->conf->split_count++;
    if (count > SPLIT_SHARES) {
        load_fault(load, value_line(sec), "split has %zu upstreams, expected at most %d", count,
                   SPLIT_SHARES);
        return;
    }
    route->split.shares = load_alloc(load, count, sizeof(*route->split.shares));
    for (size_t i = 0; route->split.shares && i < count; i++)
        share_compile(load, value_at(sec, GRAMMAR_PAIRS, 2 * i),
                      value_at(sec, GRAMMAR_PAIRS, 2 * i + 1), route);
    if (load->faults->count == faults && !load->broken && !load->no_memory &&
        !route->split.total)
        load_fault(load, value_line(sec),
                   count ? "the weights of split sum to 0, expected at least one above 0"
                         : "split is empty, expected upstreams with weights: "
                           "split { stable = 95  canary = 5 }");
    hash_on_compile(load, sec, "sticky", false, &route->split.sticky,
                    &route->split.sticky_name);
}
