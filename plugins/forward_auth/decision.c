#include "decision.h"

#include <stdlib.h>

/* Where text is put: first only counted, then copied. */
struct draft {
    char *out; /* NULL while counting */
    size_t n;
};

static struct postern_str put(struct draft *draft, struct postern_str text)
{
    struct postern_str copy = {draft->out ? draft->out + draft->n : "", text.n};

    if (draft->out && text.n > 0)
        memcpy(draft->out + draft->n, text.p, text.n);
    draft->n += text.n;
    return copy;
}

static bool wanted(const struct forward_auth *auth, const struct decision *decision,
                   struct postern_str name)
{
    if (decision_is_yes(decision))
        return names_have(&auth->response_headers, name) ||
               names_have(&auth->client_headers, name) ||
               text_is(auth->credential_header, name);
    return decision_is_no(decision) && names_have(&auth->refusal_headers, name);
}

static void fill(struct draft *draft, struct decision *decision,
                 const struct forward_auth *auth, const struct postern_reply *reply)
{
    decision->header_count = 0;
    for (size_t i = 0; i < reply->header_count; i++) {
        const struct postern_header *header = &reply->headers[i];

        /* The body's type goes with the body. */
        if (decision_is_no(decision) && text_is(header->name, TEXT("content-type")))
            decision->type = put(draft, header->value);
        else if (decision->header_count < DECISION_HEADERS &&
                 wanted(auth, decision, header->name))
            decision->headers[decision->header_count++] =
                (struct postern_header){put(draft, header->name), put(draft, header->value)};
    }
    if (decision_is_no(decision) && reply->body.n > 0)
        decision->body = put(draft, reply->body);
}

/* What one directive of Cache-Control leaves of so many ms. */
static uint64_t shorten(struct postern_str s, uint64_t ms)
{
    uint64_t seconds = 0;

    while (s.n > 0 && (s.p[0] == ' ' || s.p[0] == '\t'))
        s = (struct postern_str){s.p + 1, s.n - 1};
    if (s.n >= 8 &&
        (strncasecmp(s.p, "no-store", 8) == 0 || strncasecmp(s.p, "no-cache", 8) == 0))
        return 0;
    if (s.n < 9 || strncasecmp(s.p, "max-age=", 8) != 0)
        return ms;
    for (size_t i = 8; i < s.n && s.p[i] >= '0' && s.p[i] <= '9' && seconds < 1000000000; i++)
        seconds = seconds * 10 + (uint64_t)(s.p[i] - '0');
    return seconds * 1000 < ms ? seconds * 1000 : ms;
}

static uint64_t keep_ms(const struct forward_auth *auth, const struct postern_reply *reply)
{
    uint64_t ms = auth->cache_ms;

    for (size_t i = 0; i < reply->header_count; i++) {
        struct postern_str value = reply->headers[i].value;

        if (!text_is(reply->headers[i].name, TEXT("cache-control")))
            continue;
        for (size_t start = 0, at = 0; at <= value.n; at++) {
            if (at < value.n && value.p[at] != ',')
                continue;
            ms = shorten((struct postern_str){value.p + start, at - start}, ms);
            start = at + 1;
        }
    }
    return ms;
}

struct decision *decision_new(const struct forward_auth *auth,
                              const struct postern_reply *reply)
{
    struct decision head = {.status = reply->status}, *decision;
    struct draft draft = {NULL, 0};

    fill(&draft, &head, auth, reply);
    decision = malloc(sizeof(*decision) + draft.n);
    if (!decision)
        return NULL;
    *decision = (struct decision){.status = reply->status};
    draft = (struct draft){(char *)(decision + 1), 0};
    fill(&draft, decision, auth, reply);
    if (decision_is_yes(decision))
        decision->keep_ms = keep_ms(auth, reply);
    return decision;
}
