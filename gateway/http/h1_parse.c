#include "http/h1_parse_parts.h"

/* RFC 9112 6.2; what no file has ever been. Keeps sums of lengths from wrapping. */
#define LENGTH_MAX ((uint64_t)INT64_MAX)

/* A head being read. Every loop over tokens ends at the latest at the CR of the final CR LF,
 * which h1_parse_* make sure of first, so that bytes need no bounds check. */
struct reader {
    const char *start, *p, *end;
    const struct h1_limits *limits;
    struct head *head;
    uint32_t max; /* fields that there is room and leave for */
    struct h1_fault *fault;
    bool request;

    /* first of each, for what must be said after the last line */
    struct str host, length, coding, upgrade;
    unsigned hosts, upgrades;
    bool close, persist, wants_upgrade;
};

static int bad(const struct reader *r, enum reason reason, const char *at)
{
    return h1_fail(r->fault, r->request, reason, (size_t)(at - r->start), h1_no_field);
}

static int bad_field(const struct reader *r, const struct field *field, enum reason reason)
{
    return h1_fail(r->fault, r->request, reason, (size_t)(field->value.p - r->start),
                   field->name);
}

/* The same for a field of which only the value was kept. */
static int bad_value(const struct reader *r, enum field_id id, struct str value,
                     enum reason reason)
{
    if (!value.p)
        return bad(r, reason, r->start);
    return h1_fail(r->fault, r->request, reason, (size_t)(value.p - r->start), field_names[id]);
}

static int open_reader(struct reader *r, bool request, const char *p, size_t n,
                       const struct h1_limits *limits, struct head *head,
                       struct h1_fault *fault)
{
    struct field *fields = head->fields;
    uint32_t cap = head->cap;

    *r = (struct reader){.start = p, .p = p, .end = p + n, .limits = limits};
    r->head = head;
    r->max = cap < limits->headers ? cap : limits->headers;
    r->fault = fault;
    r->request = request;
    *head = (struct head){.fields = fields, .cap = cap};
    if (n < 2 || p[n - 2] != '\r' || p[n - 1] != '\n')
        return bad(r, R_BAD_LINE_ENDING, r->end);
    if (n > limits->header_bytes)
        return h1_fail_limit(fault, request, R_CLIENT_HEADERS_TOO_LARGE, 0, h1_no_field,
                             limits->header_bytes, n);
    return 0;
}

/* "HTTP/1.0" or "HTTP/1.1", whatever follows (RFC 9112 2.3). */
static int read_version(struct reader *r)
{
    const char *p = r->p;

    if (r->end - p < 8 || memcmp(p, "HTTP/", 5) != 0 || p[5] < '0' || p[5] > '9' ||
        p[6] != '.' || p[7] < '0' || p[7] > '9')
        return bad(r, R_BAD_REQUEST_LINE, p);
    if (p[5] != '1' || p[7] > '1')
        return bad(r, R_BAD_VERSION, p);
    r->head->minor = (uint8_t)(p[7] - '0');
    r->p = p + 8;
    return 0;
}

static int read_method(struct reader *r)
{
    struct str *text = &r->head->method_text;

    *text = (struct str){r->p, 0};
    while (byte_is(*r->p, BYTE_TOKEN))
        r->p++;
    text->n = (size_t)(r->p - text->p);
    if (*r->p == '\r' || text->n == 0)
        return bad(r, *r->p == '\r' || *r->p == ' ' ? R_BAD_REQUEST_LINE : R_BAD_METHOD, r->p);
    if (*r->p != ' ' || text->n > H1_METHOD_MAX)
        return bad(r, R_BAD_METHOD, text->n > H1_METHOD_MAX ? text->p + H1_METHOD_MAX : r->p);
    r->p++;
    r->head->method = method_of(*text);
    if (r->head->method == M_CONNECT)
        return bad(r, R_BAD_METHOD, text->p);
    return 0;
}

/* "http://" or "https://", any case: the length, else 0. */
static size_t scheme_length(struct str target)
{
    if (target.n > 7 && str_eq_nocase((struct str){target.p, 7}, STR("http://")))
        return 7;
    if (target.n > 8 && str_eq_nocase((struct str){target.p, 8}, STR("https://")))
        return 8;
    return 0;
}

/* RFC 9112 3.2.2. Moves `target` on to what follows the authority. */
static int split_absolute(struct reader *r, struct str *target)
{
    size_t scheme = scheme_length(*target), n;
    struct str authority;

    if (scheme == 0)
        return bad(r, R_BAD_TARGET, target->p);
    for (n = scheme; n < target->n && target->p[n] != '/' && target->p[n] != '?'; n++)
        ;
    authority = (struct str){target->p + scheme, n - scheme};
    if (!head_is_authority(authority))
        return bad(r, R_BAD_TARGET, authority.p);
    r->head->authority = authority;
    r->head->secure = scheme == 8;
    target->p += n;
    target->n -= n;
    return 0;
}

static int read_target(struct reader *r)
{
    struct head *head = r->head;
    struct str rest;
    const char *question, *p = r->p;

    while (byte_is(*p, BYTE_TARGET))
        p++;
    rest = (struct str){r->p, (size_t)(p - r->p)};
    r->p = p;
    if (*r->p != ' ')
        return bad(r, *r->p == '\r' ? R_BAD_REQUEST_LINE : R_BAD_TARGET, r->p);
    if (rest.n == 0)
        return bad(r, R_BAD_REQUEST_LINE, r->p);
    if (rest.n > r->limits->target_bytes)
        return h1_fail_limit(r->fault, true, R_CLIENT_TARGET_TOO_LONG,
                             (size_t)(rest.p - r->start), h1_no_field, r->limits->target_bytes,
                             rest.n);
    r->p++;
    head->target = rest;
    if (rest.n == 1 && *rest.p == '*') {
        head->path = rest;
        return head->method == M_OPTIONS ? 0 : bad(r, R_BAD_TARGET, rest.p);
    }
    if (*rest.p != '/' && split_absolute(r, &rest) < 0)
        return -1;
    question = rest.n ? memchr(rest.p, '?', rest.n) : NULL;
    head->path = (struct str){rest.p, question ? (size_t)(question - rest.p) : rest.n};
    if (question)
        head->query = (struct str){question + 1, rest.n - head->path.n - 1};
    if (head->path.n == 0) /* RFC 9112 3.2.4: OPTIONS http://host asks about the server */
        head->path = head->method == M_OPTIONS && !question ? STR("*") : STR("/");
    return 0;
}

static int read_line_end(struct reader *r, enum reason otherwise)
{
    if (*r->p != '\r' && *r->p != '\n')
        return bad(r, otherwise, r->p);
    if (*r->p == '\n' || r->p[1] != '\n')
        return bad(r, R_BAD_LINE_ENDING, r->p);
    r->p += 2;
    return 0;
}

/* RFC 9112 3 */
static int read_request_line(struct reader *r)
{
    if (read_method(r) < 0 || read_target(r) < 0 || read_version(r) < 0)
        return -1;
    return read_line_end(r, R_BAD_REQUEST_LINE);
}

/* RFC 9112 4 */
static int read_status_line(struct reader *r)
{
    const char *p;

    if (read_version(r) < 0)
        return -1;
    p = r->p;
    if (*p != ' ' || r->end - p < 6 || p[1] < '1' || p[1] > '5' || p[2] < '0' || p[2] > '9' ||
        p[3] < '0' || p[3] > '9')
        return bad(r, R_UPSTREAM_PROTOCOL, p);
    r->head->status = (uint16_t)((p[1] - '0') * 100 + (p[2] - '0') * 10 + p[3] - '0');
    r->p += 4;
    if (*r->p == ' ') {
        const char *text = ++r->p;
        r->p = bytes_text_end_in(r->start, text, r->end);
        r->head->reason_phrase = (struct str){text, (size_t)(r->p - text)};
    }
    return read_line_end(r, R_UPSTREAM_PROTOCOL);
}

/* One field line (RFC 9112 5). Returns 1, 0 at the empty line that ends the head, or -1. */
static int read_field(struct reader *r, struct field *field)
{
    const char *p = r->p, *value, *end;

    if (p == r->end) /* no empty line came */
        return bad(r, R_BAD_LINE_ENDING, p);
    field->name = (struct str){p, bytes_to_colon(p, r->end)};
    field->id = field_id_of(field->name);
    if (field->id == F_OTHER) { /* else all of it is known to be a token */
        while (byte_is(*p, BYTE_TOKEN))
            p++;
        field->name.n = (size_t)(p - field->name.p);
        field->id = field_id_of(field->name);
    }
    p = field->name.p + field->name.n;
    if (*p != ':' || field->name.n == 0) {
        r->p = p;
        if (p == field->name.p && *p == '\r' && p[1] == '\n' && p + 2 == r->end)
            return 0;
        if (p == field->name.p && (*p == ' ' || *p == '\t'))
            return bad(r, R_BAD_FOLDING, p);
        /* a line that ends well and has no colon is a bad name, not a bad ending */
        bool ends_badly = *p == '\n' || (*p == '\r' && p[1] != '\n');
        return bad(r, ends_badly ? R_BAD_LINE_ENDING : R_BAD_FIELD_NAME, p);
    }
    p += p[1] == ' ' ? 2 : 1;
    while (*p == ' ' || *p == '\t')
        p++;
    value = p;
    end = p = bytes_text_end_in(r->start, p, r->end);
    if (*p != '\r' || p[1] != '\n') {
        enum reason reason = *p == '\r' || *p == '\n' ? R_BAD_LINE_ENDING : R_BAD_FIELD_VALUE;
        return h1_fail(r->fault, r->request, reason, (size_t)(p - r->start), field->name);
    }
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    field->value = (struct str){value, (size_t)(end - value)};
    field->checked = true;
    field->line = end == p && value == field->name.p + field->name.n + 2 && value[-1] == ' ';
    r->p = p + 2;
    return 1;
}

static void note_connection(struct reader *r, struct str options)
{
    struct str option;

    if (str_eq(options, STR("keep-alive"))) { /* what most clients say, and all of it */
        r->persist = true;
        return;
    }
    while (str_next_token(&options, &option)) {
        if (str_eq_nocase(option, STR("close")))
            r->close = true;
        else if (str_eq_nocase(option, STR("keep-alive")))
            r->persist = true;
        else if (str_eq_nocase(option, STR("upgrade")))
            r->wants_upgrade = true;
    }
}

/* RFC 9110 10.1.1: 100-continue is the one expectation that there is. */
static int note_expect(struct reader *r, const struct field *field)
{
    struct str list = field->value, expectation;

    while (r->request && str_next_token(&list, &expectation)) {
        if (!str_eq_nocase(expectation, STR("100-continue")))
            return bad_field(r, field, R_CLIENT_EXPECT);
        r->head->expect_continue = r->head->minor == 1;
    }
    return 0;
}

static int note_length(struct reader *r, const struct field *field)
{
    struct head *head = r->head;

    if (head->has_length || str_to_u64(field->value, LENGTH_MAX, &head->length) < 0)
        return bad_field(r, field, R_BAD_LENGTH);
    head->has_length = true;
    r->length = field->value;
    return 0;
}

/* The name of a transfer coding (RFC 9112 7). */
static struct str before_parameters(struct str coding)
{
    const char *mark = memchr(coding.p, ';', coding.n);
    struct str name = {coding.p, mark ? (size_t)(mark - coding.p) : coding.n};

    while (mark && name.n && (name.p[name.n - 1] == ' ' || name.p[name.n - 1] == '\t'))
        name.n--;
    return name;
}

/* RFC 9112 6.1 and 7: what is not exactly one "chunked" is refused; the two answers tell a
 * coding that exists somewhere from a list that means nothing. */
static int note_coding(struct reader *r, const struct field *field)
{
    struct str list = field->value, coding;
    bool is_chunked = false, has_other = false;

    if (r->coding.p || r->head->minor == 0)
        return bad_field(r, field, R_BAD_TRANSFER);
    r->coding = field->value;
    if (str_eq_nocase(field->value, STR("chunked")))
        return 0;
    while (str_next_token(&list, &coding)) {
        struct str name = before_parameters(coding);
        bool bare = name.n == coding.n; /* "chunked" has no parameters */
        if (is_chunked || !head_is_token(name))
            return bad_field(r, field, R_BAD_TRANSFER);
        is_chunked = str_eq_nocase(name, STR("chunked"));
        if (is_chunked && !bare)
            return bad_field(r, field, R_BAD_TRANSFER);
        has_other |= !is_chunked;
    }
    return bad_field(r, field, has_other ? R_BAD_CODING : R_BAD_TRANSFER);
}

#define F_LAST_NOTED F_EXPECT /* FIELDS begins with those that are looked at */

/* The fields that say something about the message or the connection. Returns 1, or 0 for one
 * that is not to be kept (framing is made anew by whoever writes), or -1. */
static int note_field(struct reader *r, const struct field *field)
{
    switch (field->id) {
    case F_HOST:
        r->host = field->value;
        r->hosts++;
        return 1;
    case F_CONNECTION:
        note_connection(r, field->value);
        return 1;
    case F_UPGRADE:
        r->upgrade = field->value;
        r->upgrades++;
        return 1;
    case F_EXPECT:
        return note_expect(r, field) < 0 ? -1 : 1;
    case F_CONTENT_LENGTH:
        return note_length(r, field);
    case F_TRANSFER_ENCODING:
        return note_coding(r, field);
    default:
        return 1;
    }
}

static int fail_too_many(const struct reader *r, const struct field *field)
{
    return h1_fail_limit(r->fault, r->request, R_CLIENT_HEADERS_TOO_LARGE,
                         (size_t)(field->name.p - r->start), field->name, r->max,
                         (uint64_t)r->max + 1);
}

/* All field lines, each straight into its place, where not all stay. */
static int read_fields(struct reader *r, bool (*is_unwanted)(const struct field *field))
{
    struct head *head = r->head;
    struct field beyond; /* one more may come if it is not kept */
    int more;

    for (;;) {
        struct field *field = head->count < r->max ? &head->fields[head->count] : &beyond;
        more = read_field(r, field);
        if (more <= 0)
            break;
        if (is_unwanted)
            more = !is_unwanted(field);
        else if (field->id != F_OTHER && field->id <= F_LAST_NOTED)
            more = note_field(r, field);
        if (more < 0)
            break;
        head->present |= 1ull << field->id;
        if (more && field == &beyond)
            return fail_too_many(r, field);
        head->count += (uint32_t)more;
    }
    if (more == 0 && r->coding.p && head->has_length)
        return bad_value(r, F_CONTENT_LENGTH, r->length, R_BAD_FRAMING);
    return more;
}

/* RFC 9112 3.2 and 3.2.2. There must be one Host and it must be one; an absolute target's
 * authority then takes its place, whatever it says, for us and for the backend alike. */
static int settle_host(struct reader *r)
{
    struct head *head = r->head;

    if (r->hosts > 1 || (r->hosts == 0 && head->minor == 1))
        return bad_value(r, F_HOST, r->host, R_BAD_HOST);
    if (r->hosts == 0)
        return 0;
    if (!head_is_authority(r->host))
        return bad_value(r, F_HOST, r->host, R_BAD_HOST);
    if (!head->authority.p)
        head->authority = r->host;
    return 0;
}

/* protocol-name ["/" protocol-version] (RFC 9110 7.8) */
static bool is_protocol(struct str s)
{
    const char *slash = memchr(s.p, '/', s.n);
    size_t n = slash ? (size_t)(slash - s.p) : s.n;

    return head_is_token((struct str){s.p, n}) &&
           (!slash || head_is_token((struct str){slash + 1, s.n - n - 1}));
}

/* Behind which a backend would take requests that nobody here sees: HTTP/2 in the clear and its
 * drafts, any HTTP, and TLS (RFC 2817). */
static bool hides_requests(struct str protocol)
{
    const char *slash = memchr(protocol.p, '/', protocol.n);
    struct str name = {protocol.p, slash ? (size_t)(slash - protocol.p) : protocol.n};

    return (name.n >= 2 && str_eq_nocase((struct str){name.p, 2}, STR("h2"))) ||
           str_eq_nocase(name, STR("http")) || str_eq_nocase(name, STR("tls"));
}

/* RFC 9110 7.8. An offer of what hides requests is not taken, alone or in company. */
static int settle_upgrade(struct reader *r)
{
    struct str list = r->upgrade, protocol;
    unsigned protocols = 0;
    bool hides = false;

    if (r->upgrades == 0 || !r->wants_upgrade || r->head->minor == 0)
        return 0;
    if (r->upgrades > 1)
        return bad_value(r, F_UPGRADE, r->upgrade, R_BAD_UPGRADE);
    for (; str_next_token(&list, &protocol); protocols++) {
        if (!is_protocol(protocol))
            return bad_value(r, F_UPGRADE, protocol, R_BAD_UPGRADE);
        hides |= hides_requests(protocol);
    }
    if (protocols == 0)
        return bad_value(r, F_UPGRADE, r->upgrade, R_BAD_UPGRADE);
    if (hides)
        return 0;
    if (r->request && (r->coding.p || r->head->length > 0))
        return bad_value(r, F_UPGRADE, r->upgrade, R_BAD_UPGRADE);
    r->head->upgrade = r->upgrade;
    return 0;
}

/* RFC 9112 6.3, where both kinds of message agree. */
static enum framing framing_of(const struct reader *r, enum framing without)
{
    if (r->coding.p)
        return FRAMING_CHUNKED;
    return r->head->has_length ? FRAMING_LENGTH : without;
}

/* The fault of a head is the first that its bytes have, in whatever pieces they came. Always
 * -1. */
static int blame_first(const struct reader *r)
{
    struct h1_fault first;

    if (!h1_head_judge(r->request, r->start, (size_t)(r->end - r->start), r->limits, &first))
        *r->fault = first;
    return -1;
}

int h1_parse_request(const char *p, size_t n, const struct h1_limits *limits, struct head *head,
                     struct h1_fault *ret_fault)
{
    struct reader r;

    if (open_reader(&r, true, p, n, limits, head, ret_fault) < 0 || read_request_line(&r) < 0 ||
        read_fields(&r, NULL) < 0 || settle_host(&r) < 0 || settle_upgrade(&r) < 0)
        return blame_first(&r);
    head->framing = framing_of(&r, FRAMING_NONE);
    head->keep_alive = !r.close && (head->minor == 1 || r.persist);
    return 0;
}

int h1_parse_response(const char *p, size_t n, const struct h1_limits *limits,
                      enum method method, struct head *head, struct h1_fault *ret_fault)
{
    struct reader r;

    if (open_reader(&r, false, p, n, limits, head, ret_fault) < 0 || read_status_line(&r) < 0 ||
        read_fields(&r, NULL) < 0 || (head->status == 101 && settle_upgrade(&r) < 0))
        return blame_first(&r);
    head->framing = framing_of(&r, FRAMING_CLOSE);
    if (method == M_HEAD || head->status < 200 || head->status == 204 || head->status == 304)
        head->framing = FRAMING_NONE;
    head->keep_alive =
        !r.close && (head->minor == 1 || r.persist) && head->framing != FRAMING_CLOSE;
    return 0;
}

static bool is_wrong_in_trailer(const struct field *field)
{
    return head_is_wrong_in_trailer(field->name);
}

int h1_parse_trailers(const char *p, size_t n, bool request, const struct h1_limits *limits,
                      struct head *head, struct h1_fault *ret_fault)
{
    struct reader r;

    if (open_reader(&r, request, p, n, limits, head, ret_fault) == 0) {
        head->minor = 1;
        if (read_fields(&r, is_wrong_in_trailer) == 0)
            return 0;
    }
    if (ret_fault->reason != R_CLIENT_HEADERS_TOO_LARGE && request)
        ret_fault->reason = R_BAD_TRAILER;
    return -1;
}
