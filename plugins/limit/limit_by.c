#include "limit/limit_by.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

static const char *const words[] = {
    [LIMIT_BY_IP] = "client_ip",   [LIMIT_BY_CREDENTIAL] = "credential",
    [LIMIT_BY_HEADER] = "header:", [LIMIT_BY_PATH] = "path",
    [LIMIT_BY_ROUTE] = "route",
};

/* ---- configuration ---- */

static uint64_t secret[2];
static pthread_once_t secret_once = PTHREAD_ONCE_INIT;
static bool has_secret;

static void draw_secret(void)
{
    has_secret = getrandom(secret, sizeof(secret), 0) == (ssize_t)sizeof(secret);
}

static bool is_token(const char *p, size_t n)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter && !(c >= '0' && c <= '9') && (!c || !strchr(others, c)))
            return false;
    }
    return n > 0;
}

static bool read_part(struct postern_str text, struct limit_by_part *ret)
{
    for (int kind = LIMIT_BY_IP; kind <= LIMIT_BY_ROUTE; kind++) {
        size_t n = strlen(words[kind]);
        if (text.n < n || memcmp(text.p, words[kind], n) != 0 ||
            (kind != LIMIT_BY_HEADER && text.n != n))
            continue;
        ret->kind = kind;
        if (kind != LIMIT_BY_HEADER)
            return true;
        text.p += n;
        text.n -= n;
        if (text.n >= sizeof(ret->header) || !is_token(text.p, text.n))
            return false;
        for (size_t i = 0; i < text.n; i++) {
            char c = text.p[i];
            ret->header[i] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
        }
        return true;
    }
    return false;
}

static bool is_twice(const struct limit_by *by, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (by->parts[i].kind == by->parts[n].kind &&
            strcmp(by->parts[i].header, by->parts[n].header) == 0)
            return true;
    return false;
}

bool limit_by_read(const struct postern_api *api, struct postern_setup *s, int by_option,
                   const struct postern_values *by, int v6_option,
                   const struct postern_values *v6, struct limit_by *ret)
{
    bool ok = true;
    *ret = (struct limit_by){.count = 0};
    if (by->count > LIMIT_BY_MAX) {
        api->fault(s, by_option, LIMIT_BY_MAX, "by has %zu parts, expected at most %d",
                   by->count, LIMIT_BY_MAX);
        return false;
    }
    for (size_t i = 0; i < by->count; i++) {
        struct postern_str text = by->list[i].text;
        if (!read_part(text, &ret->parts[i])) {
            api->fault(s, by_option, i,
                       "by has \"%.*s\", expected client_ip, credential, header:NAME "
                       "(a header's name of at most %zu bytes), path or route",
                       (int)text.n, text.p, sizeof(ret->parts[i].header) - 1);
            ok = false;
        } else if (is_twice(ret, (unsigned)i)) {
            api->fault(s, by_option, i, "by has \"%.*s\" twice", (int)text.n, text.p);
            ok = false;
        }
    }
    ret->count = (unsigned)by->count;
    int64_t bits = v6->count ? v6->list[0].number : 64;
    if (bits % 8) {
        api->fault(s, v6_option, 0, "ipv6_prefix is %lld, expected a multiple of 8",
                   (long long)bits);
        ok = false;
    }
    ret->v6_bytes = (unsigned)(bits / 8);
    pthread_once(&secret_once, draw_secret);
    if (!has_secret) {
        api->fault(s, -1, 0, "the system gives no random bytes");
        return false;
    }
    memcpy(ret->secret, secret, sizeof(secret));
    return ok;
}

void limit_by_name(const struct limit_by *by, char *out, size_t max)
{
    size_t n = 0;
    out[0] = '\0';
    for (unsigned i = 0; i < by->count && n < max; i++)
        n += (size_t)snprintf(out + n, max - n, "%s%s%s", i ? "," : "",
                              words[by->parts[i].kind], by->parts[i].header);
    if (n < max)
        snprintf(out + n, max - n, "/%u", by->v6_bytes * 8);
}

/* ---- requests ---- */

typedef void part_fn(void *arg, enum limit_by_kind kind, struct postern_str bytes);

static void give_address(const struct limit_by *by, const struct postern_api *api,
                         struct postern_request *r, part_fn *part, void *arg)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}; /* ::ffff:0:0/96 */
    uint8_t address[16];
    unsigned n = api->address(r, address);
    const uint8_t *p = address;
    if (n == 0) {
        part(arg, LIMIT_BY_UNIX, api->get(r, POSTERN_LISTENER));
        return;
    }
    if (n == 16 && memcmp(address, mapped, sizeof(mapped)) == 0) {
        p += sizeof(mapped); /* all of IPv4 would be one network */
        n = 4;
    }
    if (n == 16)
        n = by->v6_bytes;
    part(arg, LIMIT_BY_IP, (struct postern_str){(const char *)p, n});
}

static struct postern_str named(const struct postern_api *api, struct postern_request *r,
                                const struct limit_by_part *part)
{
    switch (part->kind) {
    case LIMIT_BY_CREDENTIAL:
        return api->get(r, POSTERN_CREDENTIAL);
    case LIMIT_BY_HEADER:
        return api->value(r, POSTERN_HEADER,
                          (struct postern_str){part->header, strlen(part->header)}, 0);
    case LIMIT_BY_PATH:
        return api->get(r, POSTERN_PATH);
    case LIMIT_BY_ROUTE:
        return api->get(r, POSTERN_ROUTE);
    case LIMIT_BY_IP:
    case LIMIT_BY_UNIX:
        break;
    }
    return (struct postern_str){NULL, 0};
}

static void each(const struct limit_by *by, const struct postern_api *api,
                 struct postern_request *r, part_fn *part, void *arg)
{
    for (unsigned i = 0; i < by->count; i++) {
        struct postern_str text = named(api, r, &by->parts[i]);
        if (text.p)
            part(arg, by->parts[i].kind, text);
        else
            give_address(by, api, r, part, arg);
    }
}

void limit_by_each(const struct limit_by *by, const struct postern_api *api,
                   struct postern_request *r, part_fn *part, void *arg)
{
    each(by, api, r, part, arg);
}

/* Kind and length stand before the bytes, so that no two keys give the same text. */
static void add_part(void *arg, enum limit_by_kind kind, struct postern_str bytes)
{
    struct siphash *h = arg;
    uint64_t head = (uint64_t)kind << 56 | bytes.n;
    siphash_add(h, &head, sizeof(head));
    siphash_add(h, bytes.p, bytes.n);
}

uint64_t limit_by_hash(const struct limit_by *by, const struct postern_api *api,
                       struct postern_request *r)
{
    struct siphash h;
    siphash_begin(&h, by->secret);
    each(by, api, r, add_part, &h);
    return siphash_end(&h);
}
