#include "proxy/text.h"

#include "base/utf8.h"
#include "http/bytes.h"

#define ESCAPED_MAX 6 /* bytes that one byte becomes at most */

static struct str variable(struct exchange *ex, const struct template_part *part)
{
    const struct field *field;
    switch (part->var) {
    case VAR_LITERAL:
        return part->text;
    case VAR_CAPTURE:
        return ex->match.captures[part->capture];
    case VAR_CLIENT_IP:
        return ex->client_ip;
    case VAR_REQUEST_ID:
        return ex->req_id;
    case VAR_HOST:
        return ex->host;
    case VAR_PATH:
        return ex->path;
    case VAR_HEADER:
        field = ex->head ? head_find_name(ex->head, part->text) : NULL;
        return field ? field->value : STR("");
    }
    return STR("");
}

/* ---- one byte ---- */

static size_t put_hex(char *out, const char *prefix, unsigned char c, const char *digits)
{
    size_t n = strlen(prefix);
    memcpy(out, prefix, n);
    out[n] = digits[c >> 4];
    out[n + 1] = digits[c & 15];
    return n + 2;
}

/* RFC 3986: what may stand in that part of a URI. */
static bool is_uri_byte(unsigned char c, enum escape escape)
{
    if (c <= ' ' || c >= 0x7f)
        return false;
    if (escape == ESCAPE_PATH)
        return !strchr("\"#%<>?[\\]^`{|}", c);
    if (byte_is((char)c, BYTE_UNRESERVED))
        return true;
    /* in a query "&", "=", "+" and ";" part names and values */
    return escape == ESCAPE_QUERY && strchr("!$'()*,/:?@", c);
}

static size_t put_uri(char *out, unsigned char c, enum escape escape)
{
    if (!is_uri_byte(c, escape))
        return put_hex(out, "%", c, "0123456789ABCDEF");
    out[0] = (char)c;
    return 1;
}

/* RFC 8259 7. In a script other bytes could end a text too, or the element that it is in. */
static size_t put_json(char *out, unsigned char c, enum escape escape)
{
    if (c < 0x20 || c == '"' || c == '\\' || c == 0x7f ||
        (escape == ESCAPE_SCRIPT && strchr("$&'<>`", c)))
        return put_hex(out, "\\u00", c, "0123456789abcdef");
    out[0] = (char)c;
    return 1;
}

static size_t put_html(char *out, unsigned char c)
{
    const char *entity = c == '<'    ? "&lt;"
                         : c == '>'  ? "&gt;"
                         : c == '&'  ? "&amp;"
                         : c == '"'  ? "&#34;"
                         : c == '\'' ? "&#39;"
                                     : NULL;
    out[0] = (char)c;
    if (!entity)
        return 1;
    memcpy(out, entity, strlen(entity));
    return strlen(entity);
}

static size_t put_byte(char *out, unsigned char c, enum escape escape)
{
    switch (escape) {
    case ESCAPE_PATH:
    case ESCAPE_QUERY:
    case ESCAPE_AUTHORITY:
        return put_uri(out, c, escape);
    case ESCAPE_JSON:
    case ESCAPE_SCRIPT:
        return put_json(out, c, escape);
    case ESCAPE_HTML:
        return put_html(out, c);
    case ESCAPE_FIELD:
        c = c < ' ' || c == 0x7f ? ' ' : c;
        break;
    case ESCAPE_NONE:
        break;
    }
    out[0] = (char)c;
    return 1;
}

/* ---- all of them ---- */

/* JSON is UTF-8 (RFC 8259 8.1), and a field's value may be any bytes: what is no character
 * becomes the one that stands for such. Returns the bytes of the character at `i`. */
static size_t put_character(char *out, size_t *used, struct str s, size_t i)
{
    size_t n = utf8_len(s.p + i, s.n - i);
    memcpy(out, n ? s.p + i : "\\ufffd", n ? n : 6);
    *used += n ? n : 6;
    return n ? n : 1;
}

/* `escaped`: "%" begins an escape that is there already. */
static size_t put(char *out, struct str s, enum escape escape, bool escaped)
{
    size_t n = 0;
    if (escape == ESCAPE_NONE && s.n) {
        memcpy(out, s.p, s.n);
        return s.n;
    }
    bool characters = escape == ESCAPE_JSON || escape == ESCAPE_SCRIPT;
    for (size_t i = 0; i < s.n;) {
        unsigned char c = (unsigned char)s.p[i];
        if (characters && c >= 0x80) {
            i += put_character(out + n, &n, s, i);
            continue;
        }
        if (escaped && c == '%')
            out[n++] = '%';
        else
            n += put_byte(out + n, c, escape);
        i++;
    }
    return n;
}

struct str text_escape(struct arena *arena, struct str s, enum escape escape)
{
    char *out = arena_alloc(arena, s.n * ESCAPED_MAX + 1);
    if (!out)
        return (struct str){NULL, 0};
    return (struct str){out, put(out, s, escape, false)};
}

static size_t put_part(char *out, struct exchange *ex, const struct template_part *part)
{
    struct str value = variable(ex, part);
    enum escape escape = part->escape;
    /* paths and captures are in normal form: escaped already where a path needs it */
    bool normal = part->var == VAR_CAPTURE || part->var == VAR_PATH;
    if ((escape == ESCAPE_PATH && normal) ||
        (escape == ESCAPE_AUTHORITY && part->var == VAR_HOST))
        escape = ESCAPE_NONE;
    bool uri = escape == ESCAPE_QUERY || escape == ESCAPE_AUTHORITY;
    return put(out, value, escape, normal && uri);
}

struct str text_fill(struct exchange *ex, const struct template *text)
{
    if (text->count == 1 && text->parts[0].var == VAR_LITERAL)
        return text->parts[0].text;
    size_t bound = 1, n = 0;
    for (size_t i = 0; i < text->count; i++)
        bound += variable(ex, &text->parts[i]).n *
                 (text->parts[i].escape == ESCAPE_NONE ? 1 : ESCAPED_MAX);
    char *out = arena_alloc(&ex->arena, bound);
    if (!out)
        return (struct str){NULL, 0};
    for (size_t i = 0; i < text->count; i++)
        n += put_part(out + n, ex, &text->parts[i]);
    return (struct str){out, n};
}
