#include "key_places.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define AUTHORIZATION ((struct postern_str){"Authorization", 13})
#define CHALLENGE     ((struct postern_str){"WWW-Authenticate", 16})

bool key_places_add(struct key_places *places, enum postern_part part, bool is_scheme,
                    const struct postern_values *names)
{
    size_t count = places->count + names->count;
    struct key_place *list = realloc(places->list, (count + 1) * sizeof(*list));
    if (!list)
        return false;
    places->list = list;
    for (size_t i = 0; i < names->count; i++) {
        char *name = strdup(names->list[i].text.p);
        if (!name)
            return false;
        list[places->count++] = (struct key_place){part, is_scheme, {name, strlen(name)}};
    }
    return true;
}

static const char *kind(const struct key_place *place)
{
    return place->is_scheme                   ? "Authorization:"
           : place->part == POSTERN_HEADER    ? "header"
           : place->part == POSTERN_PARAMETER ? "parameter"
                                              : "cookie";
}

static char *expected(const struct key_places *places)
{
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    if (!out)
        return NULL;
    for (size_t i = 0; i < places->count; i++)
        fprintf(out, "%s%s %s", i ? " or " : "", kind(&places->list[i]),
                places->list[i].name.p);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

/* RFC 9110 5.6.4 */
static void put_quoted(FILE *out, struct postern_str text)
{
    putc('"', out);
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] == '"' || text.p[i] == '\\')
            putc('\\', out);
        putc(text.p[i], out);
    }
    putc('"', out);
}

/* RFC 9110 11.6.1; for Bearer, `error` is what RFC 6750 3.1 calls it. A field with a key has no
 * scheme of its own: ApiKey says where it belongs. .p NULL: no memory. */
static struct postern_str challenge(const struct key_place *place, struct postern_str realm,
                                    const char *error)
{
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    if (!out)
        return (struct postern_str){NULL, 0};
    fprintf(out, "%s realm=", place->is_scheme ? place->name.p : "ApiKey");
    put_quoted(out, realm);
    if (!place->is_scheme) {
        fprintf(out, ", in=\"%s\", name=", kind(place));
        put_quoted(out, place->name);
    } else if (error && strcasecmp(place->name.p, "Bearer") == 0) {
        fprintf(out, ", error=\"%s\"", error);
    }
    if (fclose(out) == 0)
        return (struct postern_str){text, n};
    free(text);
    return (struct postern_str){NULL, 0};
}

static bool add_challenge(struct key_places *places, const struct key_place *place,
                          struct postern_str realm)
{
    size_t i = places->challenge_count++;
    places->challenges[i] = (struct postern_header){CHALLENGE, challenge(place, realm, NULL)};
    places->refusals[i] =
        (struct postern_header){CHALLENGE, challenge(place, realm, "invalid_token")};
    places->multiples[i] =
        (struct postern_header){CHALLENGE, challenge(place, realm, "invalid_request")};
    return places->challenges[i].value.p && places->refusals[i].value.p &&
           places->multiples[i].value.p;
}

bool key_places_finish(struct key_places *places, struct postern_str realm)
{
    const struct key_place *first = NULL;
    places->expected = expected(places);
    places->challenges = calloc(places->count + 1, sizeof(*places->challenges));
    places->refusals = calloc(places->count + 1, sizeof(*places->refusals));
    places->multiples = calloc(places->count + 1, sizeof(*places->multiples));
    if (!places->expected || !places->challenges || !places->refusals || !places->multiples)
        return false;
    for (size_t i = 0; i < places->count; i++) {
        const struct key_place *place = &places->list[i];
        if (place->is_scheme && !add_challenge(places, place, realm))
            return false;
        if (!place->is_scheme && !first)
            first = place;
    }
    return !first || add_challenge(places, first, realm);
}

void key_places_done(struct key_places *places)
{
    for (size_t i = 0; i < places->count; i++)
        free((char *)places->list[i].name.p);
    for (size_t i = 0; i < places->challenge_count; i++) {
        free((char *)places->challenges[i].value.p);
        free((char *)places->refusals[i].value.p);
        free((char *)places->multiples[i].value.p);
    }
    free(places->list);
    free(places->challenges);
    free(places->refusals);
    free(places->multiples);
    free(places->expected);
}

/* What stands behind the scheme; .p NULL: it is another scheme. RFC 9110 11.4 */
static struct postern_str behind_scheme(struct postern_str value, struct postern_str scheme)
{
    if (value.n < scheme.n || strncasecmp(value.p, scheme.p, scheme.n) != 0)
        return (struct postern_str){NULL, 0};
    value.p += scheme.n;
    value.n -= scheme.n;
    if (value.n > 0 && *value.p != ' ')
        return (struct postern_str){NULL, 0};
    for (; value.n > 0 && *value.p == ' '; value.n--)
        value.p++;
    return value;
}

unsigned key_places_find(const struct key_places *places, const struct postern_api *api,
                         struct postern_request *r, bool keep, struct postern_str *ret_key)
{
    unsigned found = 0;
    for (size_t i = 0; i < places->count; i++) {
        const struct key_place *place = &places->list[i];
        struct postern_str name = place->is_scheme ? AUTHORIZATION : place->name;
        struct postern_str value = api->value(r, place->part, name, 0);
        if (!value.p)
            continue;
        bool has_more = api->value(r, place->part, name, 1).p;
        struct postern_str key = place->is_scheme ? behind_scheme(value, place->name) : value;
        if (!key.p && !has_more)
            continue; /* for somebody else */
        if (!found)
            *ret_key = key;
        found += has_more ? 2 : 1;
        if (!keep)
            api->remove(r, place->part, name);
    }
    return found;
}
