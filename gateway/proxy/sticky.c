#include "proxy/sticky.h"

#include <stdio.h>

#include "proxy/forward.h"
#include "proxy/forwarded.h"

#define ID_DIGITS   16
#define SUFFIX_SIZE 96 /* of what stands behind the path */

int sticky_server(const struct exchange *ex)
{
    const struct cluster *cluster = ex->cluster;
    uint64_t id;
    if (!cluster->ids)
        return -1;
    struct str value = forward_cookie(ex->head, str_of(ex->upstream->sticky.name));
    if (value.n != ID_DIGITS || str_hex_to_u64(value, UINT64_MAX, &id) < 0)
        return -1;
    for (uint32_t i = 0; i < cluster->count; i++)
        if (cluster->ids[i] == id)
            return (int)i;
    return -1;
}

bool sticky_tell(struct exchange *ex, struct head *head)
{
    static const char *const sites[] = {
        [SAME_SITE_LAX] = "Lax", [SAME_SITE_STRICT] = "Strict", [SAME_SITE_NONE] = "None"};
    const struct conf_upstream *up = ex->upstream;
    if (!ex->cluster->ids || ex->server == sticky_server(ex))
        return true;
    char id[ID_DIGITS + 1], suffix[SUFFIX_SIZE];
    snprintf(id, sizeof(id), "%016llx", (unsigned long long)ex->cluster->ids[ex->server]);
    bool secure = up->sticky.secure == SECURE_ALWAYS ||
                  (up->sticky.secure == SECURE_AUTO && forwarded_is_https(ex));
    int n = 0;
    if (up->sticky.max_age)
        n = snprintf(suffix, sizeof(suffix), "; Max-Age=%u", up->sticky.max_age / 1000);
    n += snprintf(suffix + n, sizeof(suffix) - (size_t)n, "; HttpOnly; SameSite=%s%s",
                  sites[up->sticky.same_site], secure ? "; Secure" : "");
    struct str value = arena_join(&ex->arena,
                                  (struct str[]){str_of(up->sticky.name),
                                                 STR("="),
                                                 {id, ID_DIGITS},
                                                 STR("; Path="),
                                                 str_of(up->sticky.path),
                                                 {suffix, (size_t)n}},
                                  6);
    return value.p && head_add(head, &ex->arena, STR("Set-Cookie"), value) == 0;
}
