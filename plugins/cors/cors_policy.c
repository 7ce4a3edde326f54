#include "cors_policy.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ORIGIN_BYTES 512

/* ---- origins ---- */

/* The parts of "scheme://host[:port]". */
struct parts {
    struct postern_str scheme, host, port; /* port .p NULL: none */
};

static bool is_host_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
}

/* What stands between brackets is an IPv6 address. */
static size_t host_length(const char *p, const char *end)
{
    const char *at = p;
    if (at < end && *at == '[') {
        for (at++; at < end && (isxdigit((unsigned char)*at) || *at == ':' || *at == '.');)
            at++;
        return at < end && *at == ']' ? (size_t)(at + 1 - p) : 0;
    }
    while (at < end && is_host_byte(*at))
        at++;
    return (size_t)(at - p);
}

static bool split(struct postern_str text, struct parts *ret)
{
    const char *end = text.p + text.n, *p = text.p;
    while (p < end && ((*p >= 'a' && *p <= 'z') ||
                       (p > text.p && (isdigit((unsigned char)*p) || strchr("+-.", *p)))))
        p++;
    ret->scheme = (struct postern_str){text.p, (size_t)(p - text.p)};
    if (p == text.p || end - p < 4 || memcmp(p, "://", 3) != 0)
        return false;
    p += 3;
    ret->host = (struct postern_str){p, host_length(p, end)};
    p += ret->host.n;
    ret->port = (struct postern_str){NULL, 0};
    if (p < end && *p == ':') {
        ret->port = (struct postern_str){p + 1, (size_t)(end - p - 1)};
        for (p++; p < end && isdigit((unsigned char)*p);)
            p++;
        if (ret->port.n == 0 || ret->port.n > 5)
            return false;
    }
    return ret->host.n > 0 && p == end;
}

static bool is_default_port(struct postern_str scheme, struct postern_str port)
{
    return (scheme.n == 4 && memcmp(scheme.p, "http", 4) == 0 && port.n == 2 &&
            memcmp(port.p, "80", 2) == 0) ||
           (scheme.n == 5 && memcmp(scheme.p, "https", 5) == 0 && port.n == 3 &&
            memcmp(port.p, "443", 3) == 0);
}

static char *copy(struct postern_str text)
{
    return strndup(text.p ? text.p : "", text.n);
}

/* The star of "*.example.com" is left out, so that it is read as ".example.com". */
int cors_origin_parse(const char *text, struct cors_origin *ret)
{
    char plain[ORIGIN_BYTES];
    struct cors_origin origin = {.is_suffix = false};
    struct parts parts;
    size_t n = strlen(text), out = 0;
    bool any_port = n > 2 && strcmp(text + n - 2, ":*") == 0;
    if (n >= sizeof(plain))
        return -EINVAL;
    n -= any_port ? 2 : 0;
    for (size_t i = 0; i < n; i++) {
        bool is_star = text[i] == '*' && i > 2 && memcmp(text + i - 3, "://", 3) == 0;
        if (is_star && text[i + 1] == '.' && i + 2 < n)
            origin.is_suffix = true;
        else
            plain[out++] = (char)tolower((unsigned char)text[i]);
    }
    if (!split((struct postern_str){plain, out}, &parts) || (any_port && parts.port.p) ||
        (!origin.is_suffix && parts.host.p[0] == '.'))
        return -EINVAL;
    if (parts.port.p && is_default_port(parts.scheme, parts.port))
        parts.port = (struct postern_str){NULL, 0};
    origin.scheme = copy(parts.scheme);
    origin.host = copy(parts.host);
    origin.port = any_port ? strdup("*") : copy(parts.port);
    if (!origin.scheme || !origin.host || !origin.port) {
        cors_origin_done(&origin);
        return -ENOMEM;
    }
    *ret = origin;
    return 0;
}

void cors_origin_done(struct cors_origin *origin)
{
    free(origin->scheme);
    free(origin->host);
    free(origin->port);
}

static bool is_text(struct postern_str a, const char *b)
{
    return strlen(b) == a.n && (a.n == 0 || memcmp(a.p, b, a.n) == 0);
}

/* Some labels in front, and then the pattern's. */
static bool ends_in(struct postern_str host, const char *suffix)
{
    size_t n = strlen(suffix);
    return host.n > n && host.p[0] != '.' && host.p[0] != '[' &&
           memcmp(host.p + host.n - n, suffix, n) == 0;
}

bool cors_origin_is(const struct cors_origin *pattern, struct postern_str origin)
{
    struct parts parts;
    if (origin.n > ORIGIN_BYTES || !split(origin, &parts) ||
        !is_text(parts.scheme, pattern->scheme))
        return false;
    if (pattern->is_suffix ? !ends_in(parts.host, pattern->host)
                           : !is_text(parts.host, pattern->host))
        return false;
    return strcmp(pattern->port, "*") == 0 || is_text(parts.port, pattern->port);
}

/* ---- lists of tokens ---- */

bool cors_tokens_make(struct cors_tokens *tokens, const char *const *texts, size_t count)
{
    size_t size = 1, n = 0;
    for (size_t i = 0; i < count; i++)
        size += strlen(texts[i]) + 2;
    tokens->list = calloc(count + 1, sizeof(*tokens->list));
    tokens->joined = calloc(size, 1);
    if (!tokens->list || !tokens->joined)
        return false;
    for (size_t i = 0; i < count; i++) {
        n += (size_t)snprintf(tokens->joined + n, size - n, "%s%s", i ? ", " : "", texts[i]);
        tokens->list[i] = strdup(texts[i]);
        if (!tokens->list[i])
            return false;
        tokens->count++;
        tokens->has_any |= strcmp(texts[i], "*") == 0;
    }
    return true;
}

void cors_tokens_done(struct cors_tokens *tokens)
{
    for (size_t i = 0; i < tokens->count; i++)
        free(tokens->list[i]);
    free((void *)tokens->list);
    free(tokens->joined);
}

/* RFC 9110 5.6.2 */
static bool is_token(struct postern_str text)
{
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] <= 0x20 || text.p[i] >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", text.p[i]))
            return false;
    return text.n > 0;
}

bool cors_tokens_has(const struct cors_tokens *tokens, struct postern_str token, bool any_case)
{
    if (!is_token(token))
        return false;
    if (tokens->has_any)
        return true;
    for (size_t i = 0; i < tokens->count; i++) {
        const char *one = tokens->list[i];
        if (strlen(one) == token.n && (any_case ? strncasecmp(one, token.p, token.n)
                                                : memcmp(one, token.p, token.n)) == 0)
            return true;
    }
    return false;
}

bool cors_tokens_have_all(const struct cors_tokens *tokens, struct postern_str field)
{
    const char *end = field.p + field.n;
    for (const char *p = field.p; p < end; p++) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        struct postern_str one = {p, (size_t)((comma ? comma : end) - p)};
        p = comma ? comma : end;
        for (; one.n > 0 && (*one.p == ' ' || *one.p == '\t'); one.n--)
            one.p++;
        while (one.n > 0 && (one.p[one.n - 1] == ' ' || one.p[one.n - 1] == '\t'))
            one.n--;
        if (one.n > 0 && !cors_tokens_has(tokens, one, true))
            return false;
    }
    return true;
}
