#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "http/path.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define ALL      ((1u << PATH_CLASSES) - 1)

static struct slab slab;
static struct arena arena;

static int open_arena(void **state)
{
    (void)state;
    slab_init(&slab, ARENA_CHUNK, 1);
    arena_init(&arena, &slab);
    return 0;
}

static int close_arena(void **state)
{
    (void)state;
    arena_done(&arena);
    slab_done(&slab);
    return 0;
}

static void assert_normal(const char *raw, unsigned allow, const char *want)
{
    struct str got = {NULL, 0}, again;
    unsigned cls = 77;
    size_t at = 77;
    assert_int_equal(path_normalise(str_of(raw), allow, &arena, &got, &cls, &at), 0);
    assert_int_equal(got.n, strlen(want));
    assert_memory_equal(got.p, want, got.n);
    /* the normal form is its own normal form */
    size_t total = arena.total;
    assert_int_equal(path_normalise(got, allow, &arena, &again, &cls, &at), 0);
    assert_ptr_equal(again.p, got.p);
    assert_int_equal(again.n, got.n);
    assert_int_equal(arena.total, total);
}

static void assert_refused(const char *raw, unsigned allow, unsigned want_class, size_t want_at)
{
    struct str got = {NULL, 0};
    unsigned cls = 77;
    size_t at = 77;
    assert_int_equal(path_normalise(str_of(raw), allow, &arena, &got, &cls, &at), -EINVAL);
    assert_int_equal(cls, want_class);
    assert_int_equal(at, want_at);
    assert_null(got.p);
}

static void returns_the_path_itself_when_nothing_changes(void **state)
{
    static const char *const paths[] = {
        "/",       "*",    "/a",        "/a/b/c.html", "/a/",     "/.a",    "/a.",
        "/..a",    "/a..", "/...",      "/%20",        "/a%2Cb",  "/a=1",   "/a,b",
        "/%C3%A4", "/%25", "/100%25/x", "/%25x",       "/~a_b-c", "/a:b@c", "/!$&'()*+,=",
    };
    (void)state;
    for (size_t i = 0; i < COUNT(paths); i++) {
        struct str raw = str_of(paths[i]), got;
        unsigned cls;
        size_t at, total = arena.total;
        assert_int_equal(path_normalise(raw, PATH_ALLOW_DEFAULT, &arena, &got, &cls, &at), 0);
        assert_ptr_equal(got.p, raw.p);
        assert_int_equal(got.n, raw.n);
        assert_int_equal(arena.total, total);
    }
}

static void decodes_what_needs_no_escape_and_keeps_the_rest_in_upper_case(void **state)
{
    (void)state;
    assert_normal("/%61%5a%39%2d%5f%7E%2e", PATH_ALLOW_DEFAULT, "/aZ9-_~.");
    assert_normal("/%c3%a4%2c%20", PATH_ALLOW_DEFAULT, "/%C3%A4%2C%20");
    assert_normal("/a%2eb", PATH_ALLOW_DEFAULT, "/a.b");
    assert_normal("/%e2%82%ac%f0%9f%98%80", 0, "/%E2%82%AC%F0%9F%98%80");
}

static void resolves_dot_segments(void **state)
{
    /* RFC 3986 5.2.4 and what lies around its examples */
    static const struct {
        const char *raw, *want;
    } cases[] = {
        {"/a/b/c/./../../g", "/a/g"},
        {"/.", "/"},
        {"/./", "/"},
        {"/a/.", "/a/"},
        {"/a/..", "/"},
        {"/a/../", "/"},
        {"/a/b/..", "/a/"},
        {"/a/../b", "/b"},
        {"/a/./b", "/a/b"},
        {"/./a%41", "/aA"},
        {"/a/../b//c", "/b/c"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_normal(cases[i].raw, PATH_ALLOW_DEFAULT, cases[i].want);
}

static void slashes_and_parameters_are_read_as_allowed(void **state)
{
    unsigned keep = PATH_ALLOW_DEFAULT & ~(unsigned)(PATH_MERGE_SLASHES | PATH_DROP_PARAMETERS);
    (void)state;
    assert_normal("//a///b//", PATH_ALLOW_DEFAULT, "/a/b/");
    assert_normal("//", PATH_ALLOW_DEFAULT, "/");
    assert_normal("/a;v=1/b;w;x", PATH_ALLOW_DEFAULT, "/a/b");
    assert_normal("/;a/b", PATH_ALLOW_DEFAULT, "/b"); /* nothing before it: a doubled slash */
    assert_normal("/a;%2e%2E;%c3%a4/b", PATH_ALLOW_DEFAULT, "/a/b");
    assert_normal("/a;", PATH_ALLOW_DEFAULT, "/a");
    assert_normal("//a///b//", keep, "//a///b//");
    assert_normal("/a;v=1/b", keep, "/a;v=1/b");
    assert_refused("/a;%2f", PATH_ALLOW_DEFAULT, PATH_ENCODED_SLASH, 3);
    assert_refused("/a;%zz", PATH_ALLOW_DEFAULT, 0, 3);
    assert_refused("/..;/a", PATH_ALLOW_DEFAULT, PATH_ENCODED_DOT, 1);
    assert_refused("/;/../a", PATH_ALLOW_DEFAULT, PATH_DOTS_BEHIND_EMPTY, 3);
    /* a servlet container reads ".." */
    assert_refused("/a/..;/b", PATH_PARAMETER, PATH_ENCODED_DOT, 3);
    assert_refused("/a/.;x=1/b", PATH_PARAMETER, PATH_ENCODED_DOT, 3);
}

/* /a//../b is /b to who merges first, /a/b to who resolves first. */
static void dots_behind_a_doubled_slash_are_a_class_of_their_own(void **state)
{
    unsigned keep = PATH_ALLOW_DEFAULT & ~(unsigned)PATH_MERGE_SLASHES;
    unsigned both = PATH_DOTS_BEHIND_EMPTY | PATH_ALLOW_DEFAULT;
    (void)state;
    assert_refused("/a//../b", PATH_ALLOW_DEFAULT, PATH_DOTS_BEHIND_EMPTY, 4);
    assert_refused("/a//../b", keep, PATH_DOTS_BEHIND_EMPTY, 4);
    assert_refused("/a//b/../../c", PATH_ALLOW_DEFAULT, PATH_DOTS_BEHIND_EMPTY, 6);
    assert_refused("/;x/b/..", PATH_ALLOW_DEFAULT, PATH_DOTS_BEHIND_EMPTY, 6);
    assert_normal("/a//../b", both, "/b");
    assert_normal("/a//../b", keep | PATH_DOTS_BEHIND_EMPTY, "/a/b");
    assert_normal("/a//./b", PATH_ALLOW_DEFAULT, "/a/b");
}

static void never_climbs_above_the_root(void **state)
{
    (void)state;
    assert_refused("/..", ALL, 0, 1);
    assert_refused("/../a", ALL, 0, 1);
    assert_refused("/a/../../b", ALL, 0, 6);
    assert_refused("/./..", ALL, 0, 3);
    assert_refused("/%2e%2E/a", ALL, 0, 1);
}

static void refuses_each_class_by_name_and_place(void **state)
{
    static const struct {
        const char *raw;
        unsigned cls;
        size_t at;
    } cases[] = {
        {"/a%2fb", PATH_ENCODED_SLASH, 2},
        {"/a%2Fb", PATH_ENCODED_SLASH, 2},
        {"/a\\b", PATH_BACKSLASH, 2},
        {"/a%5cb", PATH_BACKSLASH, 2},
        {"/%00", PATH_ENCODED_NUL, 1},
        {"/%01", PATH_ENCODED_CONTROL, 1},
        {"/%1f", PATH_ENCODED_CONTROL, 1},
        {"/%0d%0a", PATH_ENCODED_CONTROL, 1},
        {"/%7f", PATH_ENCODED_CONTROL, 1},
        {"/a/%2e/b", PATH_ENCODED_DOT, 3},
        {"/a/%2e%2e/b", PATH_ENCODED_DOT, 3},
        {"/a/.%2e", PATH_ENCODED_DOT, 3},
        {"/%3b", PATH_ENCODED_DELIMITER, 1},
        {"/%3f", PATH_ENCODED_DELIMITER, 1},
        {"/%23", PATH_ENCODED_DELIMITER, 1},
        {"/%252f", PATH_ENCODED_DELIMITER, 1},
        {"/%25%32%66", PATH_ENCODED_DELIMITER, 1}, /* becomes %252f when decoded once */
        {"/%252%66", PATH_ENCODED_DELIMITER, 1},
        {"/a/./b", PATH_DOT_SEGMENT, 3},
        {"/a/..", PATH_DOT_SEGMENT, 3},
        {"//", PATH_DOUBLE_SLASH, 1},
        {"/a//b", PATH_DOUBLE_SLASH, 3},
        {"/%80", PATH_BAD_UTF8, 1}, /* a tail alone */
        {"/%c3", PATH_BAD_UTF8, 1}, /* cut short */
        {"/%c3x", PATH_BAD_UTF8, 1},
        {"/%c0%af", PATH_OVERLONG, 1}, /* overlong "/" */
        {"/%c1%9c", PATH_OVERLONG, 1},
        {"/%e0%80%af", PATH_OVERLONG, 1},
        {"/%f0%80%80%af", PATH_OVERLONG, 1},
        {"/%f8%80%80%80%af", PATH_OVERLONG, 1},
        {"/a;b", PATH_PARAMETER, 2},
        {"/%ed%a0%80", PATH_BAD_UTF8, 1}, /* a surrogate */
        {"/%f4%90%80%80", PATH_BAD_UTF8, 1},
        {"/%c3%a4%a4", PATH_BAD_UTF8, 7},
        {"/%c0", PATH_BAD_UTF8, 1}, /* Latin-1 */
        {"/%fc", PATH_BAD_UTF8, 1},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct str got;
        unsigned cls;
        size_t at;
        assert_refused(cases[i].raw, 0, cases[i].cls, cases[i].at);
        /* allowing every other class changes nothing, allowing this one does */
        assert_int_equal(
            path_normalise(str_of(cases[i].raw), ALL & ~cases[i].cls, &arena, &got, &cls, &at),
            -EINVAL);
        assert_int_equal(cls, cases[i].cls);
        assert_int_equal(path_normalise(str_of(cases[i].raw), ALL, &arena, &got, &cls, &at), 0);
    }
}

static void keeps_the_escapes_of_a_class_that_is_allowed(void **state)
{
    (void)state;
    assert_normal("/a%2fb", PATH_ENCODED_SLASH, "/a%2Fb");
    assert_normal("/a%2f../b", PATH_ENCODED_SLASH, "/a%2F../b"); /* one segment */
    assert_normal("/a\\b%5c", PATH_BACKSLASH, "/a\\b%5C");
    assert_normal("/%00", PATH_ENCODED_NUL, "/%00");
    assert_normal("/%25%32%66", PATH_ENCODED_DELIMITER, "/%252f");
    assert_normal("/%3b", PATH_ENCODED_DELIMITER, "/%3B");
    assert_normal("/a/%2e%2e/b", PATH_ENCODED_DOT | PATH_DOT_SEGMENT, "/b");
    assert_normal("/%80", PATH_BAD_UTF8, "/%80");
}

/* The first character that needs so many bytes is none in too many. */
static void the_least_character_of_its_length_is_one(void **state)
{
    (void)state;
    assert_normal("/%c2%80", 0, "/%C2%80");
    assert_normal("/%e0%a0%80", 0, "/%E0%A0%80");
    assert_normal("/%f0%90%80%80", 0, "/%F0%90%80%80");
    assert_normal("/%f4%8f%bf%bf", 0, "/%F4%8F%BF%BF");
    assert_refused("/%e0%9f%bf", 0, PATH_OVERLONG, 1);
    assert_refused("/%f0%8f%bf%bf", 0, PATH_OVERLONG, 1);
    assert_refused("/%f8%87%bf%bf%bf", 0, PATH_OVERLONG, 1);
    assert_refused("/%f8%88%80%80%80", 0, PATH_BAD_UTF8, 1); /* no character has five */
    assert_refused("/%fc%83%bf%bf%bf%bf", 0, PATH_OVERLONG, 1);
    assert_refused("/%fc%84%80%80%80%80", 0, PATH_BAD_UTF8, 1);
}

/* What becomes an escape when decoded once stands in one segment, and in one piece. */
static void an_escaped_percent_ends_with_what_is_no_digit(void **state)
{
    (void)state;
    assert_normal("/%25/2f", 0, "/%25/2f");
    assert_normal("/%252/f", 0, "/%252/f");
    assert_normal("/%25g2f", 0, "/%25g2f");
    assert_normal("/%252g2f", 0, "/%252g2f");
    assert_normal("/%25", 0, "/%25");
    assert_normal("/%252", 0, "/%252");
    assert_refused("/%25g%252f", 0, PATH_ENCODED_DELIMITER, 5);
}

static void refuses_broken_escapes_and_foreign_bytes_always(void **state)
{
    static const struct {
        const char *raw;
        size_t at;
    } cases[] = {
        {"/%", 1},  {"/a%2", 2},      {"/%g0", 1},      {"/%0g", 1},  {"/%%61", 1}, {"/a b", 2},
        {"/a?", 2}, {"/a#b", 2},      {"/\xc3\xa4", 1}, {"/a\tb", 2}, {"", 0},      {"a", 0},
        {"**", 0},  {"http://a/", 0}, {"/%-1", 1},      {"/./%", 3},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_refused(cases[i].raw, ALL, 0, cases[i].at);
}

/* An escape in front makes the long way of it: the rest must be read the same. */
static void what_is_plain_at_a_glance_is_plain(void **state)
{
    (void)state;
    for (unsigned pair = 0; pair < 0x10000; pair++) {
        char a = (char)(pair >> 8), b = (char)pair;
        char plain[] = {'/', 'x', a, b, 'y'}, escaped[] = {'/', '%', '7', '8', a, b, 'y'};
        for (unsigned allow = 0; allow <= ALL; allow += ALL) {
            struct str one = {NULL, 0}, other = {NULL, 0};
            unsigned cls;
            size_t at;
            int rc = path_normalise((struct str){plain, 5}, allow, &arena, &one, &cls, &at);
            assert_int_equal(
                path_normalise((struct str){escaped, 7}, allow, &arena, &other, &cls, &at), rc);
            assert_true(rc < 0 || str_eq(one, other));
        }
        arena_done(&arena);
    }
}

static void says_when_memory_is_out(void **state)
{
    struct str got = {NULL, 0};
    unsigned cls = 77;
    size_t at = 77;
    (void)state;
#ifdef NDEBUG
    skip();
#endif
    mem_fail_at(1);
    assert_int_equal(path_normalise(STR("/%61"), 0, &arena, &got, &cls, &at), -ENOMEM);
    assert_null(got.p);
    assert_int_equal(path_normalise(STR("/%61"), 0, &arena, &got, &cls, &at), 0);
}

static void each_class_has_a_text_of_its_own(void **state)
{
    (void)state;
    for (unsigned a = 1; a < 1u << PATH_CLASSES; a <<= 1)
        for (unsigned b = 0; b < a; b = b ? b << 1 : 1)
            assert_string_not_equal(path_class_text(a), path_class_text(b));
    assert_string_equal(path_class_text(PATH_ENCODED_SLASH), "an encoded slash (%2f)");
}

int main(void)
{
#define WITH_ARENA(test) cmocka_unit_test_setup_teardown(test, open_arena, close_arena)
    const struct CMUnitTest tests[] = {
        WITH_ARENA(returns_the_path_itself_when_nothing_changes),
        WITH_ARENA(decodes_what_needs_no_escape_and_keeps_the_rest_in_upper_case),
        WITH_ARENA(resolves_dot_segments),
        WITH_ARENA(slashes_and_parameters_are_read_as_allowed),
        WITH_ARENA(dots_behind_a_doubled_slash_are_a_class_of_their_own),
        WITH_ARENA(never_climbs_above_the_root),
        WITH_ARENA(refuses_each_class_by_name_and_place),
        WITH_ARENA(keeps_the_escapes_of_a_class_that_is_allowed),
        WITH_ARENA(the_least_character_of_its_length_is_one),
        WITH_ARENA(an_escaped_percent_ends_with_what_is_no_digit),
        WITH_ARENA(refuses_broken_escapes_and_foreign_bytes_always),
        WITH_ARENA(what_is_plain_at_a_glance_is_plain),
        WITH_ARENA(says_when_memory_is_out),
        cmocka_unit_test(each_class_has_a_text_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
