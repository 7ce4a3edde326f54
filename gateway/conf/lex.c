/* The lexical rules are libconfuse's own, read strictly: what its lexer would step over in
 * silence (stray bytes, an open comment, a NUL that cuts a text short) is a fault here. */
#include <stdlib.h>

#include "conf/load.h"

static const char marks[] = "{}()=,";
static const char not_in_words[] = " \t\r\n#\"'{}()=+,*";

void lex_init(struct lexer *lexer, struct load *load, const char *file, struct str text)
{
    *lexer = (struct lexer){
        .load = load, .file = file, .p = text.p, .end = text.p + text.n, .line = 1};
    if (text.n >= 3 && memcmp(text.p, "\xef\xbb\xbf", 3) == 0)
        lexer->p += 3; /* some editors mark UTF-8 so, and show nothing of it */
}

static void lex_fault(struct lexer *lexer, int line, const char *what)
{
    conf_fault(lexer->load->faults, (struct conf_where){lexer->file, line}, "%s", what);
}

static size_t lex_left(const struct lexer *lexer)
{
    return (size_t)(lexer->end - lexer->p);
}

static bool lex_starts(const struct lexer *lexer, const char *text)
{
    size_t n = strlen(text);
    return lex_left(lexer) >= n && memcmp(lexer->p, text, n) == 0;
}

static bool lex_skip_comment(struct lexer *lexer)
{
    if (lexer->p < lexer->end && (*lexer->p == '#' || lex_starts(lexer, "//"))) {
        const char *lf = memchr(lexer->p, '\n', lex_left(lexer));
        lexer->p = lf ? lf : lexer->end;
        return true;
    }
    if (!lex_starts(lexer, "/*"))
        return false;
    int line = lexer->line;
    const char *close = memmem(lexer->p + 2, lex_left(lexer) - 2, "*/", 2);
    const char *stop = close ? close + 2 : lexer->end;
    for (; lexer->p < stop; lexer->p++)
        lexer->line += *lexer->p == '\n';
    if (!close) {
        lexer->cut = true;
        lex_fault(lexer, line, "this comment is never closed, expected */");
    }
    return true;
}

static void lex_skip_blank(struct lexer *lexer)
{
    while (lexer->p < lexer->end) {
        if (*lexer->p == '\n')
            lexer->line++;
        else if (*lexer->p != ' ' && *lexer->p != '\t' && !lex_starts(lexer, "\r\n")) {
            if (!lex_skip_comment(lexer))
                return;
            continue;
        }
        lexer->p++;
    }
}

/* `p` is behind a backslash inside double quotes. Returns what is wrong with it, or NULL. */
static const char *escape_fault(const char *p, const char *end)
{
    unsigned value = 0;
    int digits = 0;
    if (*p == 'x') {
        for (p++; p < end && digits < 2 && strchr("0123456789abcdefABCDEF", *p) && *p; p++) {
            value |= *p != '0';
            digits++;
        }
        return digits && !value ? "a text cannot hold a NUL byte" : NULL;
    }
    if (*p < '0' || *p > '9')
        return NULL;
    for (; p < end && digits < 3 && *p >= '0' && *p <= '7'; p++, digits++)
        value = value * 8 + (unsigned)(*p - '0');
    if (!digits || value > 255 || (p < end && *p >= '0' && *p <= '9'))
        return "bad escape in a text, expected \\1 to \\377 in octal or \\xNN";
    return value ? NULL : "a text cannot hold a NUL byte";
}

static void lex_quoted(struct lexer *lexer, struct token *token)
{
    const char *from = lexer->p + 1;
    const char *fault = NULL;
    const char *p = from;
    token->quote = *lexer->p;
    for (; p < lexer->end && *p != token->quote; p++) {
        if (*p == '\\' && p + 1 < lexer->end) {
            p++;
            if (token->quote == '"' && !fault)
                fault = escape_fault(p, lexer->end);
        }
        if (*p == '\0')
            fault = "a text cannot hold a NUL byte";
        lexer->line += *p == '\n';
    }
    token->raw = (struct str){from, (size_t)(p - from)};
    lexer->p = p < lexer->end ? p + 1 : p;
    if (p == lexer->end) {
        lexer->cut = true;
        fault = "this text is never closed, expected a quotation mark";
    }
    token->kind = fault ? TOKEN_BAD : TOKEN_TEXT;
    if (fault)
        lex_fault(lexer, token->line, fault);
}

static bool is_word_byte(char c)
{
    return (unsigned char)c > ' ' && c != 0x7f && !strchr(not_in_words, c);
}

static void lex_word(struct lexer *lexer, struct token *token)
{
    const char *from = lexer->p;
    if (lex_starts(lexer, "${")) {
        const char *close = memchr(from, '}', lex_left(lexer));
        const char *lf = memchr(from, '\n', lex_left(lexer));
        if (close && (!lf || close < lf))
            lexer->p = close + 1;
    }
    if (lexer->p == from)
        while (lexer->p < lexer->end && is_word_byte(*lexer->p))
            lexer->p++;
    token->kind = TOKEN_TEXT;
    token->raw = (struct str){from, (size_t)(lexer->p - from)};
}

static void lex_bad(struct lexer *lexer, struct token *token)
{
    unsigned char c = (unsigned char)*lexer->p++;
    char text[80];
    if (c == ';')
        snprintf(text, sizeof(text), "unexpected ';', an option ends by itself");
    else if (c > ' ' && c < 0x7f)
        snprintf(text, sizeof(text), "unexpected '%c', expected quotation marks around it", c);
    else
        snprintf(text, sizeof(text), "unexpected byte 0x%02x, expected plain text", c);
    token->kind = TOKEN_BAD;
    lex_fault(lexer, token->line, text);
}

static void lex_next(struct lexer *lexer)
{
    lex_skip_blank(lexer);
    struct token *token = &lexer->token;
    *token = (struct token){.kind = TOKEN_END, .line = lexer->line, .raw = {lexer->p, 0}};
    if (lexer->p == lexer->end)
        return;
    char c = *lexer->p;
    if (c && strchr(marks, c)) {
        token->kind = TOKEN_MARK;
        token->mark = c;
        token->raw.n = 1;
        lexer->p++;
    } else if (lex_starts(lexer, "+=")) {
        token->kind = TOKEN_APPEND;
        token->raw.n = 2;
        lexer->p += 2;
    } else if (c == '"' || c == '\'') {
        lex_quoted(lexer, token);
    } else if (is_word_byte(c) && c != ';') {
        lex_word(lexer, token);
    } else {
        lex_bad(lexer, token);
    }
}

const struct token *lex_peek(struct lexer *lexer)
{
    if (!lexer->peeked)
        lex_next(lexer);
    lexer->peeked = true;
    return &lexer->token;
}

struct token lex_take(struct lexer *lexer)
{
    struct token token = *lex_peek(lexer);
    lexer->peeked = false;
    return token;
}

const char *lex_show(const struct token *token, char out[LEX_SHOW])
{
    if (token->kind == TOKEN_END)
        return "the end of the file";
    size_t n = token->raw.n < LEX_SHOW - 8 ? token->raw.n : LEX_SHOW - 8;
    snprintf(out, LEX_SHOW, "\"%.*s%s\"", (int)n, token->raw.p, n < token->raw.n ? "..." : "");
    for (char *p = out; *p; p++)
        if ((unsigned char)*p < ' ')
            *p = ' ';
    return out;
}
