#include "conf_test.h"

#include "conf/condition.h"

static struct conf *route_of(const char *options)
{
    char text[2048];
    snprintf(text, sizeof(text), LISTENER "route \"r\" { %s respond {} }", options);
    return conf_of(text);
}

struct request {
    const char *fields[3][2]; /* to the first without name */
    const char *query;        /* NULL: none */
    bool holds;
};

static void check_requests(const char *options, const struct request *requests, size_t n)
{
    struct conf *conf = route_of(options);
    for (size_t i = 0; i < n; i++) {
        struct field fields[3] = {0};
        struct head head = {.fields = fields, .cap = 3, .query = str_of(requests[i].query)};
        for (int f = 0; f < 3 && requests[i].fields[f][0]; f++) {
            fields[f].name = str_of(requests[i].fields[f][0]);
            fields[f].value = str_of(requests[i].fields[f][1]);
            head.count++;
        }
        if (conditions_hold(&conf->routes[0], &head) != requests[i].holds)
            fail_msg("%s: request %zu must %s", options, i,
                     requests[i].holds ? "match" : "not match");
    }
    conf_free(conf);
}

#define CHECK(options, ...)                                                                    \
    do {                                                                                       \
        static const struct request requests_[] = {__VA_ARGS__};                               \
        check_requests(options, requests_, sizeof(requests_) / sizeof(*requests_));            \
    } while (0)

static void a_header_equals_is_there_or_matches(void **state)
{
    (void)state;
    CHECK("match_header X-A { equals = \"1\" }", {{{"X-A", "1"}}, NULL, true},
          {{{"x-a", "1"}}, NULL, true}, {{{"X-A", "10"}}, NULL, false},
          {{{"X-A", ""}}, NULL, false}, {{{"X-B", "1"}}, NULL, false}, {{{0}}, NULL, false},
          {{{"X-A", "2"}, {"X-A", "1"}}, NULL, true}, {{{0}}, "X-A=1", false});
    CHECK("match_header X-A { equals = \"\" }", {{{"X-A", ""}}, NULL, true},
          {{{0}}, NULL, false});
    CHECK("match_header X-A { present = true }", {{{"X-A", ""}}, NULL, true},
          {{{"X-B", ""}}, NULL, false});
    CHECK("match_header X-A { present = false }", {{{"X-A", ""}}, NULL, false},
          {{{"X-B", ""}}, NULL, true}, {{{0}}, NULL, true});
    CHECK("match_header X-A { regex = '^b+$' }", {{{"X-A", "bbb"}}, NULL, true},
          {{{"X-A", "B"}}, NULL, false}, {{{"X-A", "bab"}}, NULL, false},
          {{{"X-A", "q"}, {"X-A", "b"}}, NULL, true}, {{{0}}, NULL, false});
    CHECK("match_header X-A { regex = 'v2' }", {{{"X-A", "a/v2+json"}}, NULL, true});
    CHECK("match_header X-A { regex = '^$' }", {{{"X-A", ""}}, NULL, true});
}

/* Of fields that are taken off, or count only together with others. */
static void fields_kept_apart_are_found_where_they_are(void **state)
{
    (void)state;
    static const struct {
        const char *condition;
        bool holds;
    } cases[] = {
        {"match_header Upgrade { equals = websocket }", true},
        {"match_header upgrade { regex = '^web' }", true},
        {"match_header Upgrade { present = false }", false},
        {"match_header Content-Length { equals = 12 }", true},
        {"match_header content-length { present = true }", true},
        {"match_header Content-Length { equals = 1 }", false},
        {"match_header Host { equals = \"A.example:80\" }", true},
        {"match_header Host { equals = b }", false},
    };
    struct field host = {.name = STR("Host"), .value = STR("b"), .id = F_HOST};
    struct head some = {.fields = &host,
                        .count = 1,
                        .cap = 1,
                        .authority = STR("A.example:80"),
                        .upgrade = STR("websocket"),
                        .has_length = true,
                        .length = 12},
                none = {.authority = STR("h")};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct conf *conf = route_of(cases[i].condition);
        if (conditions_hold(&conf->routes[0], &some) != cases[i].holds)
            fail_msg("%s", cases[i].condition);
        conf_free(conf);
    }
    struct conf *conf = route_of("match_header Upgrade { present = false } "
                                 "match_header Content-Length { present = false }");
    assert_true(conditions_hold(&conf->routes[0], &none));
    assert_true(conditions_hold(&conf->routes[0], NULL));
    conf_free(conf);
}

static void a_parameter_is_compared_decoded(void **state)
{
    (void)state;
    CHECK("match_query v { equals = \"a b\" }", {{{0}}, "v=a+b", true},
          {{{0}}, "v=a%20b", true}, {{{0}}, "x=1&v=a%20b&y", true}, {{{0}}, "%76=a b", true},
          {{{0}}, "v=a+b+", false}, {{{0}}, "v=a%2", false}, {{{0}}, "V=a+b", false},
          {{{0}}, "vv=a+b", false}, {{{0}}, "", false}, {{{0}}, NULL, false},
          {{{"v", "a b"}}, NULL, false}, {{{0}}, "v=1&v=a+b", true});
    CHECK("match_query v { equals = \"50%\" }", {{{0}}, "v=50%25", true},
          {{{0}}, "v=50%", true}, {{{0}}, "v=50%2", false});
    CHECK("match_query v { equals = \"\" }", {{{0}}, "v", true}, {{{0}}, "v=", true},
          {{{0}}, "&&v&", true}, {{{0}}, "w", false});
    CHECK("match_query v { present = true }", {{{0}}, "v", true}, {{{0}}, "a=v", false});
    CHECK("match_query v { present = false }", {{{0}}, "v=1", false}, {{{0}}, "a=v", true},
          {{{0}}, NULL, true});
    CHECK("match_query v { regex = '^[0-9]+ $' }", {{{0}}, "v=12+", true},
          {{{0}}, "v=%31%20", true}, {{{0}}, "v=12", false});
    CHECK("match_query \"a b\" { present = true }", {{{0}}, "a+b", true},
          {{{0}}, "a%20b=1", true});
}

static void all_of_them_must_hold(void **state)
{
    (void)state;
    CHECK("match_header A { equals = 1 } match_query B { equals = 2 }",
          {{{"A", "1"}}, "B=2", true}, {{{"A", "1"}}, "B=3", false},
          {{{"A", "2"}}, "B=2", false}, {{{0}}, NULL, false});
    struct conf *conf = route_of("match_header A { present = false }");
    assert_true(conditions_hold(&conf->routes[0], NULL));
    conf_free(conf);
}

/* An expression that would take 2^40 steps costs what the limit allows and does not match. */
static void a_cruel_expression_is_given_up(void **state)
{
    (void)state;
    struct conf *conf = route_of("match_header A { regex = '^(a|a)*$' }");
    char value[41];
    memset(value, 'a', 40);
    value[40] = '!';
    struct field field = {.name = STR("A"), .value = {value, 41}};
    struct head head = {.fields = &field, .count = 1, .cap = 1};
    assert_false(conditions_hold(&conf->routes[0], &head));
    field.value.n = 40;
    assert_true(conditions_hold(&conf->routes[0], &head));
    conf_free(conf);
}

static void asking_takes_no_memory(void **state)
{
    (void)state;
    struct conf *conf = route_of("match_header A { regex = '(b)(c)' }");
    struct field field = {.name = STR("A"), .value = STR("abcd")};
    struct head head = {.fields = &field, .count = 1, .cap = 1};
    mem_fail_at(1);
    for (int i = 0; i < 3; i++)
        assert_true(conditions_hold(&conf->routes[0], &head));
    mem_fail_at(0);
    conf_free(conf);
}

static bool includes(const char *a, const char *b)
{
    struct conf *x = route_of(a), *y = route_of(b);
    bool yes = conditions_include(&x->routes[0], &y->routes[0]);
    conf_free(x);
    conf_free(y);
    return yes;
}

static void knows_which_asks_for_less(void **state)
{
    (void)state;
    const char *one = "match_header A { equals = 1 }", *lower = "match_header a { equals = 1 }";
    assert_true(includes("", ""));
    assert_true(includes("", one));
    assert_false(includes(one, ""));
    assert_true(includes(one, lower));
    assert_true(includes("match_header A { present = true }", one));
    assert_true(includes("match_header A { present = true }", "match_header A { regex = x }"));
    assert_false(
        includes("match_header A { present = true }", "match_header A { present = false }"));
    assert_true(
        includes("match_header A { present = false }", "match_header A { present = false }"));
    assert_false(includes(one, "match_header A { present = true }"));
    assert_false(includes(one, "match_query A { equals = 1 }"));
    assert_false(includes("match_query A { equals = 1 }", "match_query a { equals = 1 }"));
    assert_false(includes(one, "match_header A { equals = 2 }"));
    assert_true(includes(one, "match_header B { equals = 2 } match_header A { equals = 1 }"));
}

static void names_what_is_wrong(void **state)
{
    (void)state;
    static const struct option_case cases[] = {
        {"match_header X { equals = 1 } match_query X { equals = 1 }", NULL},
        {"match_header X { }", "match_header \"X\" has none of equals, present and regex"},
        {"match_query x { equals = 1 regex = x }", "match_query \"x\" has several of equals"},
        {"match_header 'X Y' { present = true }",
         "match_header \"X Y\" is no name of a header, expected letters"},
        {"match_header '' { present = true }", "match_header \"\" is no name of a header"},
        {"match_query '' { present = true }", "match_query \"\" is no name of a parameter"},
        {"match_header X { present = yes }",
         "match_header.present is yes, expected false or true"},
        {"match_header X { equals = ' 1' }", "match_header.equals: the text is one that no"},
        {"match_header X { equals = \"a\\nb\" }",
         "match_header.equals: the text is one that no"},
        {"match_query X { equals = \"a\\nb \" }", NULL},
        {"match_header X { regex = '' }", "match_header.regex: the text is empty"},
        {"match_header X { regex = 'a(b' }", "match_header.regex is \"a(b\", which does not "
                                             "compile: missing closing parenthesis at "
                                             "byte 3"},
        {"match_query x { regex = '\\C' }", "which does not compile: using \\C is disabled"},
        {"match_header X { equals = 1 } match_header x { present = true }",
         "match_header \"x\" stands twice in route \"r\", expected once"},
        {"match_header Connection { equals = close }",
         "match_header \"Connection\" would never hold: the field belongs to the client's"},
        {"match_header transfer-encoding { present = true }", "would never hold"},
        {"match_query Connection { equals = close }", NULL},
        {"match_header X { match = 1 present = true }",
         "unknown option \"match\" in match_header"},
    };
    CHECK_OPTIONS("listener \"l\" { listen = \"127.0.0.1:1\" } route \"r\" { respond {}", "}",
                  cases);
}

static void has_an_end(void **state)
{
    (void)state;
    char text[4096] = LISTENER "route \"r\" { respond {}";
    size_t n = strlen(text);
    for (int i = 0; i < 33; i++)
        n += (size_t)sprintf(text + n, " match_query q%d { present = true }", i);
    strcpy(text + n, " }");
    expect_faults(text, "t:2: route \"r\" has 33 conditions, expected at most 32\n");
}

/* Faults of an unfinished load free what was compiled before: the sanitizer watches. */
static void is_freed_with_a_file_that_has_faults(void **state)
{
    (void)state;
    free(faults_of(LISTENER "route \"r\" { match_header X { regex = a } }"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_equals_is_there_or_matches),
        cmocka_unit_test(fields_kept_apart_are_found_where_they_are),
        cmocka_unit_test(a_parameter_is_compared_decoded),
        cmocka_unit_test(all_of_them_must_hold),
        cmocka_unit_test(a_cruel_expression_is_given_up),
        cmocka_unit_test(asking_takes_no_memory),
        cmocka_unit_test(knows_which_asks_for_less),
        cmocka_unit_test(names_what_is_wrong),
        cmocka_unit_test(has_an_end),
        cmocka_unit_test(is_freed_with_a_file_that_has_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
