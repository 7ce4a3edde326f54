#include "access_ranges.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 129 /* ranges inside ranges: one for each length, equal ones counting once */

struct segment {
    uint8_t first[16];
    enum access_verdict verdict; /* up to the next one */
};

struct table {
    struct segment *list;
    size_t count;
};

struct access_ranges {
    struct table v4, v6;
};

static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/* ---- text ---- */

static int parse_bits(const char *text, unsigned max, unsigned *ret)
{
    unsigned value = 0;
    size_t n = strspn(text, "0123456789");
    if (n < 1 || n > 3 || text[n])
        return -EINVAL;
    for (size_t i = 0; i < n; i++)
        value = value * 10 + (unsigned)(text[i] - '0');
    if (value > max)
        return -EINVAL;
    *ret = value;
    return 0;
}

static int parse_address(const char *text, size_t n, struct access_range *ret)
{
    char address[INET6_ADDRSTRLEN];
    if (n >= sizeof(address))
        return -EINVAL;
    memcpy(address, text, n);
    address[n] = '\0';
    ret->width = strchr(address, ':') ? 16 : 4;
    return inet_pton(ret->width == 4 ? AF_INET : AF_INET6, address, ret->first) == 1 ? 0
                                                                                     : -EINVAL;
}

int access_range_parse(const char *text, struct access_range *ret)
{
    struct access_range range = {.verdict = ret->verdict};
    size_t n = strcspn(text, "/");
    int err = parse_address(text, n, &range);
    range.bits = 8 * range.width;
    if (!err && text[n])
        err = parse_bits(text + n + 1, range.bits, &range.bits);
    if (err)
        return err;
    if (range.width == 16 && range.bits >= 96 && memcmp(range.first, mapped, 12) == 0) {
        memmove(range.first, range.first + 12, 4);
        memset(range.first + 4, 0, 12);
        range.width = 4;
        range.bits -= 96;
    }
    int is_rough = 0;
    memcpy(range.last, range.first, sizeof(range.last));
    for (unsigned i = 0; i < range.width; i++) {
        unsigned kept = range.bits > 8 * i ? range.bits - 8 * i : 0;
        uint8_t host = (uint8_t)(kept >= 8 ? 0u : 0xffu >> kept);
        is_rough |= (range.first[i] & host) != 0;
        range.first[i] &= (uint8_t)~host;
        range.last[i] |= host;
    }
    *ret = range;
    return is_rough;
}

/* ---- the table ---- */

/* By first address, the wider one first, the denying one last. */
static int compare(const void *left, const void *right)
{
    const struct access_range *a = left, *b = right;
    int order = (a->width > b->width) - (a->width < b->width);
    if (!order)
        order = memcmp(a->first, b->first, sizeof(a->first));
    if (!order)
        order = (a->bits > b->bits) - (a->bits < b->bits);
    return order ? order : (int)a->verdict - (int)b->verdict;
}

/* From `first` on it is `verdict`. The list has room. */
static void begin(struct table *table, const uint8_t first[16], enum access_verdict verdict)
{
    struct segment *next = &table->list[table->count];
    if (table->count && memcmp(next[-1].first, first, sizeof(next->first)) == 0) {
        next[-1].verdict = verdict;
        return;
    }
    table->count++;
    memcpy(next->first, first, sizeof(next->first));
    next->verdict = verdict;
}

/* Behind the end of a range it is `verdict` again; nothing is behind the last address. */
static void end(struct table *table, const struct access_range *range,
                enum access_verdict verdict)
{
    uint8_t next[16];
    memcpy(next, range->last, sizeof(next));
    for (unsigned i = range->width; i-- > 0;) {
        if (++next[i] != 0) {
            begin(table, next, verdict);
            return;
        }
    }
}

static bool is_within(const struct access_range *inner, const struct access_range *outer)
{
    return memcmp(inner->first, outer->last, sizeof(inner->first)) <= 0;
}

/* The sorted ranges of one width, flattened. False: no memory. */
static bool fill(struct table *table, const struct access_range *list, size_t count)
{
    static const uint8_t zero[16];
    const struct access_range *open[DEPTH + 1];
    size_t depth = 0;
    table->list = calloc(2 * count + 1, sizeof(*table->list));
    if (!table->list)
        return false;
    begin(table, zero, ACCESS_UNKNOWN);
    for (size_t i = 0; i <= count; i++) {
        while (depth > 0 && (i == count || !is_within(&list[i], open[depth - 1]))) {
            depth--;
            end(table, open[depth], depth ? open[depth - 1]->verdict : ACCESS_UNKNOWN);
        }
        if (i == count)
            break;
        begin(table, list[i].first, list[i].verdict);
        /* the same range once more: the later, stricter one replaces it */
        if (depth > 0 && open[depth - 1]->bits == list[i].bits)
            depth--;
        open[depth++] = &list[i];
    }
    return true;
}

struct access_ranges *access_ranges_new(struct access_range *list, size_t count)
{
    struct access_ranges *ranges = calloc(1, sizeof(*ranges));
    if (!ranges)
        return NULL;
    if (count)
        qsort(list, count, sizeof(*list), compare);
    size_t v4 = 0;
    while (v4 < count && list[v4].width == 4)
        v4++;
    if (fill(&ranges->v4, list, v4) && fill(&ranges->v6, list + v4, count - v4))
        return ranges;
    access_ranges_free(ranges);
    return NULL;
}

void access_ranges_free(struct access_ranges *ranges)
{
    if (!ranges)
        return;
    free(ranges->v4.list);
    free(ranges->v6.list);
    free(ranges);
}

enum access_verdict access_ranges_find(const struct access_ranges *ranges,
                                       const uint8_t *address, unsigned width)
{
    if (width == 16 && memcmp(address, mapped, sizeof(mapped)) == 0) {
        address += 12;
        width = 4;
    }
    const struct table *table = width == 4 ? &ranges->v4 : &ranges->v6;
    size_t low = 0, high = table->count; /* the first segment begins at the first address */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (memcmp(table->list[middle].first, address, width) <= 0)
            low = middle;
        else
            high = middle;
    }
    return table->list[low].verdict;
}
