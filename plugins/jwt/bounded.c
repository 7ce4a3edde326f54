#include "bounded.h"

/* jansson goes 2048 levels deep by recursion; a thread's stack is not a stranger's to fill. */
static bool is_flat_enough(struct postern_str text)
{
    size_t depth = 0;
    bool quoted = false;

    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];

        if (quoted && c == '\\')
            i++;
        else if (c == '"')
            quoted = !quoted;
        else if (quoted)
            continue;
        else if ((c == '[' || c == '{') && ++depth > BOUNDED_DEPTH)
            return false;
        else if ((c == ']' || c == '}') && depth > 0)
            depth--;
    }
    return true;
}

json_t *bounded_object(struct postern_str text)
{
    json_t *json;

    if (!is_flat_enough(text))
        return NULL;
    json = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(json))
        return json;
    json_decref(json);
    return NULL;
}

struct postern_str bounded_string(const json_t *object, const char *name)
{
    const json_t *member = json_object_get(object, name);

    return json_is_string(member)
               ? (struct postern_str){json_string_value(member), json_string_length(member)}
               : (struct postern_str){NULL, 0};
}
