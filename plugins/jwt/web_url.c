#include "web_url.h"

#include <strings.h>

static bool starts(struct postern_str s, const char *prefix)
{
    size_t n = strlen(prefix);

    return s.n >= n && strncasecmp(s.p, prefix, n) == 0;
}

bool web_url_split(struct postern_str url, struct web_url *ret)
{
    size_t start = starts(url, "https://") ? 8 : 7, end;

    if (url.n > WEB_URL_MAX || (start == 7 && !starts(url, "http://")))
        return false;
    for (size_t i = 0; i < url.n; i++)
        if ((unsigned char)url.p[i] <= 0x20 || (unsigned char)url.p[i] >= 0x7f ||
            strchr("#\\\"<>", url.p[i]))
            return false;
    for (end = start; end < url.n && url.p[end] != '/' && url.p[end] != '?'; end++)
        if (url.p[end] == '@')
            return false;
    if (end == start || (end < url.n && url.p[end] == '?'))
        return false;
    *ret = (struct web_url){{url.p, end}, {url.p + end, url.n - end}};
    return true;
}

/* Without the port that the scheme has anyway. */
static struct postern_str bare(struct postern_str origin)
{
    const char *port = starts(origin, "https://") ? ":443" : ":80";
    size_t n = strlen(port);

    if (origin.n > n && memcmp(origin.p + origin.n - n, port, n) == 0)
        origin.n -= n;
    return origin;
}

bool web_url_same_origin(struct postern_str a, struct postern_str b)
{
    a = bare(a);
    b = bare(b);
    return a.n == b.n && strncasecmp(a.p, b.p, a.n) == 0;
}

bool web_url_is_safe(const struct web_url *url)
{
    static const char *const own[] = {"http://localhost", "http://[::1]", "http://127."};
    struct postern_str origin = url->origin;

    if (starts(origin, "https://"))
        return true;
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        size_t n = strlen(own[i]);

        if (!starts(origin, own[i]))
            continue;
        /* Behind it an address goes on, or a port, but no name. */
        while (n < origin.n && strchr("0123456789.:", origin.p[n]))
            n++;
        return n == origin.n;
    }
    return false;
}
