/* Works on bodies: upper case, twice, a tail, cut off, or refused at a byte. */
#include <postern_plugin.h>

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const struct postern_api *api;

enum { REQUEST, RESPONSE, WAITS, OPTIONS };
enum { UPPER, TWICE, TAIL, SWALLOW, REFUSE };

static const char *const ways[] = {"upper", "twice", "tail", "swallow", "refuse", NULL};

static const struct postern_option options[OPTIONS] = {
    [REQUEST] = {"request", POSTERN_WORD, false, false, NULL, 0, 0, ways,
                 "The request's body."},
    [RESPONSE] = {"response", POSTERN_WORD, false, false, NULL, 0, 0, ways, "The answer's."},
    [WAITS] = {"waits", POSTERN_TIME, false, false, "0", 0, 60000, NULL, "Before it goes on."},
};

struct editor {
    int ways[2];
    uint32_t waits;
};

static bool load(const struct postern_api *a)
{
    api = a;
    return true;
}

static bool configure(postern_setup *s, const struct postern_values *values,
                      void **ret_instance)
{
    (void)s;
    struct editor *editor = malloc(sizeof(*editor));
    for (int i = 0; i < 2; i++)
        editor->ways[i] = values[i].count ? (int)values[i].list[0].number : -1;
    editor->waits = (uint32_t)values[WAITS].list[0].number;
    *ret_instance = editor;
    return true;
}

static bool edit(int way, postern_request *r, postern_str piece, bool last)
{
    char *copy;
    bool ok = true;
    switch (way) {
    case UPPER:
        copy = malloc(piece.n + 1);
        for (size_t i = 0; i < piece.n; i++)
            copy[i] = (char)toupper((unsigned char)piece.p[i]);
        ok = api->body(r, (postern_str){copy, piece.n});
        free(copy);
        return ok;
    case TWICE:
        return api->body(r, piece) && api->body(r, piece);
    case TAIL:
        return api->body(r, last ? (postern_str){"the end", 7} : piece);
    case SWALLOW:
        return true;
    case REFUSE:
        return !memchr(piece.p, '!', piece.n) && api->body(r, piece);
    default:
        return api->body(r, piece);
    }
}

static bool on_request_body(void *instance, postern_request *r, postern_str piece, bool last)
{
    return edit(((struct editor *)instance)->ways[0], r, piece, last);
}

static bool on_response_body(void *instance, postern_request *r, postern_str piece, bool last)
{
    return edit(((struct editor *)instance)->ways[1], r, piece, last);
}

struct word {
    struct postern_token token;
};

static void on_timer(postern_worker *w, void *arg)
{
    (void)w;
    struct word *word = arg;
    api->resume(word->token, NULL, NULL);
    free(word);
}

static enum postern_verdict on_request(void *instance, postern_request *r)
{
    const struct editor *editor = instance;
    if (!editor->waits)
        return POSTERN_GO_ON;
    struct word *word = malloc(sizeof(*word));
    word->token = api->wait(r);
    api->timer(api->worker(r), editor->waits, on_timer, word);
    return POSTERN_WAIT;
}

const struct postern_plugin postern_plugin = {
    .size = sizeof(postern_plugin),
    .abi_major = POSTERN_ABI_MAJOR,
    .abi_minor = POSTERN_ABI_MINOR,
    .name = "editor",
    .version = "1",
    .summary = "Works on bodies.",
    .options = options,
    .option_count = OPTIONS,
    .option_size = sizeof(struct postern_option),
    .order = POSTERN_ORDER_LAST,
    .load = load,
    .configure = configure,
    .discard = free,
    .on_request = on_request,
    .on_request_body = on_request_body,
    .on_response_body = on_response_body,
};
