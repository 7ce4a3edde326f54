#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <ctype.h>
#include <pthread.h>

#include "proxy/metrics.h"

static char *scrape(struct metrics *const *workers, size_t count)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);

    assert_non_null(out);
    metrics_write(workers, count, out);
    assert_int_equal(fclose(out), 0);
    return text;
}

/* ---- the text format's grammar, as strict as promtool where that matters ---- */

static const char *name_at(const char *p, bool colons)
{
    assert_true(isalpha((unsigned char)*p) || *p == '_' || (colons && *p == ':'));
    while (isalnum((unsigned char)*p) || *p == '_' || (colons && *p == ':'))
        p++;
    return p;
}

static const char *labels_at(const char *p)
{
    do {
        p = name_at(p + 1, false);
        assert_memory_equal(p, "=\"", 2);
        for (p += 2; *p != '"'; p++) {
            assert_int_not_equal(*p, '\n');
            assert_int_not_equal(*p, '\0');
            if (*p == '\\') {
                p++;
                assert_non_null(strchr("\\\"n", *p));
            }
        }
        p++;
    } while (*p == ',');
    assert_int_equal(*p, '}');
    return p + 1;
}

/* One line: `family` is the name that the last # TYPE gave. */
static void check_sample(const char *line, const char *family, const char *type)
{
    const char *p = name_at(line, true);
    size_t n = strlen(family);
    char *end;

    assert_memory_equal(line, family, n);
    if (strcmp(type, "histogram") == 0) {
        size_t rest = (size_t)(p - line) - n;
        assert_true((rest == 7 && memcmp(line + n, "_bucket", 7) == 0) ||
                    (rest == 4 && memcmp(line + n, "_sum", 4) == 0) ||
                    (rest == 6 && memcmp(line + n, "_count", 6) == 0));
    } else {
        assert_int_equal(p - line, n);
    }
    if (*p == '{')
        p = labels_at(p);
    assert_int_equal(*p, ' ');
    assert_true(p[1] == '+' || p[1] == '-' || isdigit((unsigned char)p[1]) || p[1] == 'N');
    strtod(p + 1, &end);
    assert_ptr_not_equal(end, p + 1);
    assert_int_equal(*end, '\0');
}

static void check_grammar(const char *text)
{
    char *copy = strdup(text), *rest = copy, *line;
    char family[128] = "", type[32] = "", seen[4096] = " ";
    char help[128] = "", key[132];

    assert_int_equal(text[strlen(text) - 1], '\n');
    while ((line = strsep(&rest, "\n"))) {
        if (*line == '\0') {
            assert_null(rest);
        } else if (sscanf(line, "# HELP %127s", help) == 1) {
            snprintf(key, sizeof(key), " %s ", help);
            assert_null(strstr(seen, key)); /* each family once, in one piece */
        } else if (line[0] == '#') {
            assert_int_equal(sscanf(line, "# TYPE %127s %31s", family, type), 2);
            assert_string_equal(family, help);
            assert_true(strcmp(type, "counter") == 0 || strcmp(type, "gauge") == 0 ||
                        strcmp(type, "histogram") == 0);
            assert_int_equal(strcmp(type, "counter") == 0,
                             strcmp(family + strlen(family) - 6, "_total") == 0);
            snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), " %s ", family);
        } else {
            check_sample(line, family, type);
        }
    }
    free(copy);
}

static void expect_line(const char *text, const char *line)
{
    char whole[512];

    snprintf(whole, sizeof(whole), "\n%s\n", line);
    if (!strstr(text, whole))
        fail_msg("no line %s in\n%s", line, text);
}

/* ---- tests ---- */

static void sums_workers_and_names_labels(void **state)
{
    struct metrics *workers[2] = {metrics_new(), metrics_new()};
    unsigned public = metrics_name(STR("public")), users = metrics_name(STR("user by id"));
    const unsigned get[4] = {public, users, M_GET, 200};
    const unsigned odd[4] = {public, users, M_OTHER, 404};
    const unsigned any[4] = {public, users, METRIC_ANY, METRIC_ANY};
    char *text;

    (void)state;
    series_add(metrics_series(workers[0], METRIC_REQUESTS, get), 2);
    series_add(metrics_series(workers[1], METRIC_REQUESTS, get), 40);
    series_add(metrics_series(workers[1], METRIC_REQUESTS, odd), 1);
    assert_int_equal(metrics_sum(workers, 2, METRIC_REQUESTS, get), 42);
    assert_int_equal(metrics_sum(workers, 2, METRIC_REQUESTS, any), 43);
    text = scrape(workers, 2);
    check_grammar(text);
    expect_line(text, "postern_requests_total{listener=\"public\",route=\"user by id\","
                      "method=\"GET\",code=\"200\"} 42");
    expect_line(text, "postern_requests_total{listener=\"public\",route=\"user by id\","
                      "method=\"OTHER\",code=\"404\"} 1");
    expect_line(text, "# TYPE postern_requests_total counter");
    free(text);
    metrics_free(workers[0]);
    metrics_free(workers[1]);
}

static void has_every_family_of_the_interface(void **state)
{
    struct metrics *worker = metrics_new();
    unsigned l = metrics_name(STR("L")), r = metrics_name(STR("R"));
    unsigned u = metrics_name(STR("U")), s = metrics_name(STR("S"));
    char *text;

    (void)state;
#define ADD(metric, ...)                                                                       \
    series_add(metrics_series(worker, metric, (const unsigned[4]){__VA_ARGS__}), 1)
    ADD(METRIC_RESPONSES, r, R_ROUTE_NONE);
    ADD(METRIC_UPSTREAM_REQUESTS, u, s, 502);
    ADD(METRIC_UPSTREAM_OPENED, u, s);
    ADD(METRIC_UPSTREAM_REUSES, u, s);
    ADD(METRIC_UPSTREAM_CONNECTIONS, u, s, 0);
    ADD(METRIC_UPSTREAM_CONNECTIONS, u, s, 1);
    ADD(METRIC_UPSTREAM_RETRIES, u);
    ADD(METRIC_DOWNSTREAM_CONNECTIONS, l);
    ADD(METRIC_DOWNSTREAM_BYTES, l, 0);
    ADD(METRIC_DOWNSTREAM_BYTES, l, 1);
    histogram_add(metrics_histogram(worker, METRIC_REQUEST_DURATION, r), 1);
    histogram_add(metrics_histogram(worker, METRIC_GATEWAY_DURATION, r), 1);
    histogram_add(metrics_histogram(worker, METRIC_UPSTREAM_DURATION, u), 1);
    text = scrape(&worker, 1);
    check_grammar(text);
    expect_line(text, "postern_responses_total{route=\"R\",reason=\"route.none\"} 1");
    expect_line(text,
                "postern_upstream_requests_total{upstream=\"U\",server=\"S\",code=\"502\"} 1");
    expect_line(text,
                "postern_upstream_connections_opened_total{upstream=\"U\",server=\"S\"} 1");
    expect_line(text,
                "postern_upstream_connection_reuses_total{upstream=\"U\",server=\"S\"} 1");
    expect_line(text,
                "postern_upstream_connections{upstream=\"U\",server=\"S\",state=\"idle\"} 1");
    expect_line(text,
                "postern_upstream_connections{upstream=\"U\",server=\"S\",state=\"active\"} 1");
    expect_line(text, "postern_upstream_retries_total{upstream=\"U\"} 1");
    expect_line(text, "postern_downstream_connections{listener=\"L\"} 1");
    expect_line(text, "postern_downstream_bytes_total{listener=\"L\",direction=\"in\"} 1");
    expect_line(text, "postern_downstream_bytes_total{listener=\"L\",direction=\"out\"} 1");
    expect_line(text, "postern_request_duration_seconds_count{route=\"R\"} 1");
    expect_line(text, "postern_gateway_duration_seconds_count{route=\"R\"} 1");
    expect_line(text, "postern_upstream_duration_seconds_count{upstream=\"U\"} 1");
    free(text);
    metrics_free(worker);
}

static void puts_durations_into_the_first_bucket_that_holds_them(void **state)
{
    static const double bounds[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                    0.25,   0.5,   1,      2.5,   5,    10,    30};
    struct metrics *worker = metrics_new();
    unsigned route = metrics_name(STR("buckets"));
    struct histogram *histogram = metrics_histogram(worker, METRIC_REQUEST_DURATION, route);
    char *text, line[128];

    (void)state;
    histogram_add(histogram, 0);
    for (size_t i = 0; i < 15; i++) {
        histogram_add(histogram, (uint64_t)(bounds[i] * 1e9 + 0.5)); /* le: the bound counts */
        histogram_add(histogram, (uint64_t)(bounds[i] * 1e9 + 0.5) + 1);
    }
    text = scrape(&worker, 1);
    for (size_t i = 0; i < 15; i++) {
        snprintf(line, sizeof(line),
                 "postern_request_duration_seconds_bucket{route=\"buckets\",le=\"%g\"} %zu",
                 bounds[i], 2 + 2 * i);
        expect_line(text, line);
    }
    expect_line(text,
                "postern_request_duration_seconds_bucket{route=\"buckets\",le=\"+Inf\"} 31");
    expect_line(text, "postern_request_duration_seconds_count{route=\"buckets\"} 31");
    assert_non_null(
        strstr(text, "\npostern_request_duration_seconds_sum{route=\"buckets\"} 98.8"));
    free(text);
    metrics_free(worker);
}

static void measures_its_own_part_in_finer_buckets(void **state)
{
    struct metrics *worker = metrics_new();
    unsigned route = metrics_name(STR("fine"));
    char *text;

    (void)state;
    histogram_add(metrics_histogram(worker, METRIC_GATEWAY_DURATION, route), 10000);
    histogram_add(metrics_histogram(worker, METRIC_GATEWAY_DURATION, route), 25001);
    text = scrape(&worker, 1);
    check_grammar(text);
    expect_line(text, "postern_gateway_duration_seconds_bucket{route=\"fine\",le=\"1e-05\"} 1");
    expect_line(text,
                "postern_gateway_duration_seconds_bucket{route=\"fine\",le=\"2.5e-05\"} 1");
    expect_line(text, "postern_gateway_duration_seconds_bucket{route=\"fine\",le=\"5e-05\"} 2");
    free(text);
    metrics_free(worker);
}

static void gauges_may_fall_on_another_worker(void **state)
{
    struct metrics *workers[2] = {metrics_new(), metrics_new()};
    const unsigned labels[4] = {metrics_name(STR("G"))};
    char *text;

    (void)state;
    series_add(metrics_series(workers[0], METRIC_DOWNSTREAM_CONNECTIONS, labels), 3);
    series_add(metrics_series(workers[1], METRIC_DOWNSTREAM_CONNECTIONS, labels), (uint64_t)-2);
    text = scrape(workers, 2);
    expect_line(text, "postern_downstream_connections{listener=\"G\"} 1");
    free(text);
    text = scrape(workers + 1, 1);
    expect_line(text, "postern_downstream_connections{listener=\"G\"} -2");
    free(text);
    metrics_free(workers[0]);
    metrics_free(workers[1]);
}

static void gives_one_number_for_one_name(void **state)
{
    unsigned numbers[1000];
    char name[16];

    (void)state;
    assert_int_equal(metrics_name(STR("")), 0);
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "name %u", i);
        numbers[i] = metrics_name(str_of(name));
        assert_int_not_equal(numbers[i], 0);
    }
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "name %u", i);
        assert_int_equal(metrics_name(str_of(name)), numbers[i]);
        assert_true(i == 0 || numbers[i] != numbers[i - 1]);
    }
}

static void escapes_label_values(void **state)
{
    struct metrics *worker = metrics_new();
    const unsigned labels[4] = {metrics_name(STR("a\"b\\c\nd \xc3\xbc \xff"))};
    char *text;

    (void)state;
    series_add(metrics_series(worker, METRIC_UPSTREAM_RETRIES, labels), 1);
    text = scrape(&worker, 1);
    check_grammar(text);
    expect_line(text, "postern_upstream_retries_total{upstream="
                      "\"a\\\"b\\\\c\\nd \xc3\xbc \xef\xbf\xbd\"} 1");
    free(text);
    metrics_free(worker);
}

/* Labels past a metric's own are not looked at, so that callers need not clear them. */
static void a_name_takes_its_series_with_it(void **state)
{
    struct metrics *workers[] = {metrics_new(), metrics_new()};
    unsigned gone = metrics_name(STR("gone")), kept = metrics_name(STR("kept"));
    (void)state;
    metrics_name(STR("gone")); /* two users */
    for (int i = 0; i < 2; i++) {
        series_add(metrics_series(workers[i], METRIC_UPSTREAM_RETRIES, (unsigned[4]){gone}), 5);
        series_add(metrics_series(workers[i], METRIC_UPSTREAM_RETRIES, (unsigned[4]){kept}), 7);
        histogram_add(metrics_histogram(workers[i], METRIC_UPSTREAM_DURATION, gone), 1);
    }
    metrics_give(workers, 2, &gone, 1);
    assert_int_equal(metrics_sum(workers, 2, METRIC_UPSTREAM_RETRIES, (unsigned[4]){gone}), 10);
    metrics_give(workers, 2, (unsigned[]){gone, 0}, 2);
    char *text = scrape(workers, 2);
    assert_null(strstr(text, "gone"));
    assert_non_null(strstr(text, "postern_upstream_retries_total{upstream=\"kept\"} 14"));
    assert_null(strstr(text, "postern_upstream_duration_seconds_count"));
    free(text);
    /* whoever gets its number begins at 0, and only where something is counted */
    unsigned next = metrics_name(STR("next"));
    assert_int_equal(next, gone);
    series_add(metrics_series(workers[1], METRIC_UPSTREAM_RETRIES, (unsigned[4]){next}), 1);
    text = scrape(workers, 2);
    assert_non_null(strstr(text, "postern_upstream_retries_total{upstream=\"next\"} 1\n"));
    assert_null(strstr(text, "postern_upstream_duration_seconds_count"));
    free(text);
    metrics_free(workers[0]);
    metrics_free(workers[1]);
}

static void ignores_labels_a_metric_does_not_have(void **state)
{
    struct metrics *worker = metrics_new();
    const unsigned a[4] = {1, 7, 8, 9}, b[4] = {1, 5, 0, 3};

    (void)state;
    assert_ptr_equal(metrics_series(worker, METRIC_UPSTREAM_RETRIES, a),
                     metrics_series(worker, METRIC_UPSTREAM_RETRIES, b));
    assert_ptr_not_equal(metrics_series(worker, METRIC_UPSTREAM_REUSES, a),
                         metrics_series(worker, METRIC_UPSTREAM_REUSES, b));
    metrics_free(worker);
}

static void finds_every_one_of_many_cells_where_it_was(void **state)
{
    struct metrics *worker = metrics_new();
    struct series *cells[3000];

    (void)state;
    for (unsigned i = 0; i < 3000; i++) {
        const unsigned labels[4] = {i / 100, i % 100, M_GET, 200};
        cells[i] = metrics_series(worker, METRIC_REQUESTS, labels);
        series_add(cells[i], i);
    }
    for (unsigned i = 0; i < 3000; i++) {
        const unsigned labels[4] = {i / 100, i % 100, M_GET, 200};
        assert_ptr_equal(metrics_series(worker, METRIC_REQUESTS, labels), cells[i]);
        assert_int_equal(metrics_sum(&worker, 1, METRIC_REQUESTS, labels), i);
    }
    metrics_free(worker);
}

static void no_memory_costs_a_number_and_nothing_else(void **state)
{
    (void)state;
    for (unsigned long nth = 1; nth < 12; nth++) {
        struct metrics *worker;
        mem_fail_at(nth);
        worker = metrics_new();
        if (!worker)
            continue;
        for (unsigned i = 0; i < 400; i++) {
            const unsigned labels[4] = {i};
            series_add(metrics_series(worker, METRIC_UPSTREAM_RETRIES, labels), 1);
            histogram_add(metrics_histogram(worker, METRIC_REQUEST_DURATION, i), 1);
        }
        mem_fail_at(0);
        free(scrape(&worker, 1));
        metrics_free(worker);
    }
    mem_fail_at(0);
}

struct busy {
    struct metrics *metrics;
    unsigned first;
};

#define CELLS  400
#define ROUNDS 200

static void *busy_run(void *arg)
{
    struct busy *busy = arg;

    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < CELLS * (round + 1) / ROUNDS; i++) {
            const unsigned labels[4] = {busy->first, i, M_GET, 200};
            series_add(metrics_series(busy->metrics, METRIC_REQUESTS, labels), 1);
            histogram_add(metrics_histogram(busy->metrics, METRIC_GATEWAY_DURATION, i), i);
        }
    }
    return NULL;
}

/* TSan is the second witness here. */
static void is_read_while_workers_add(void **state)
{
    struct metrics *workers[3];
    struct busy busy[3];
    pthread_t threads[3];
    const unsigned labels[4] = {metrics_name(STR("busy")), 0, M_GET, 200};
    uint64_t last = 0, now;

    (void)state;
    for (int i = 0; i < 3; i++) {
        busy[i] = (struct busy){workers[i] = metrics_new(), labels[0]};
        pthread_create(&threads[i], NULL, busy_run, &busy[i]);
    }
    for (int i = 0; i < 20; i++) {
        char *text = scrape(workers, 3);
        check_grammar(text);
        free(text);
        now = metrics_sum(workers, 3, METRIC_REQUESTS, labels);
        assert_true(now >= last);
        last = now;
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(metrics_sum(workers, 3, METRIC_REQUESTS, labels), 3 * ROUNDS);
    for (int i = 0; i < 3; i++)
        metrics_free(workers[i]);
}

static void writes_values_of_others(void **state)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);

    (void)state;
    metrics_write_head(out, "postern_build_info", "gauge", "The version.");
    metrics_write_value(out, "postern_build_info",
                        (const char *const[]){"version", "1\"", "a", "b", NULL}, 1);
    metrics_write_value(out, "x", NULL, 0.25);
    metrics_write_value(out, "x", NULL, -1.0 / 0.0);
    metrics_write_value(out, "x", NULL, 1e300);
    fclose(out);
    assert_string_equal(text, "# HELP postern_build_info The version.\n"
                              "# TYPE postern_build_info gauge\n"
                              "postern_build_info{version=\"1\\\"\",a=\"b\"} 1\n"
                              "x 0.25\nx -Inf\nx 1.0000000000000001e+300\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_workers_and_names_labels),
        cmocka_unit_test(has_every_family_of_the_interface),
        cmocka_unit_test(puts_durations_into_the_first_bucket_that_holds_them),
        cmocka_unit_test(measures_its_own_part_in_finer_buckets),
        cmocka_unit_test(gauges_may_fall_on_another_worker),
        cmocka_unit_test(gives_one_number_for_one_name),
        cmocka_unit_test(escapes_label_values),
        cmocka_unit_test(a_name_takes_its_series_with_it),
        cmocka_unit_test(ignores_labels_a_metric_does_not_have),
        cmocka_unit_test(finds_every_one_of_many_cells_where_it_was),
        cmocka_unit_test(no_memory_costs_a_number_and_nothing_else),
        cmocka_unit_test(is_read_while_workers_add),
        cmocka_unit_test(writes_values_of_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
