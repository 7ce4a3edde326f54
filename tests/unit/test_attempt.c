/* Choosing among pools that are well, busy or down; retries in proportion; what is what. */
#include "up_test.h"

#include "proxy/attempt.h"
#include "up/outlier.h"
#include "up/pool_parts.h"

static struct series refused;
static struct cluster *cluster;

static struct fleet fleet_of(uint32_t permille)
{
    static const int weights[] = {1, 1, 0};
    cluster = cluster_made((struct cluster_spec){.retry_budget_permille = permille}, weights);
    refused = (struct series){0};
    return (struct fleet){.cluster = cluster, .refused = &refused};
}

static int tear_down(void **state)
{
    (void)state;
    cluster_unref(cluster);
    cluster = NULL;
    return 0;
}

/* How many of `n` may be retried at `now`. */
static unsigned retried(struct fleet *fleet, unsigned n, uint64_t now)
{
    unsigned yes = 0;
    for (unsigned i = 0; i < n; i++) {
        bool may = attempt_may_retry(fleet, now);
        fleet->retried[0] += may;
        yes += may;
    }
    return yes;
}

static void a_few_are_always_free(void **state)
{
    (void)state;
    struct fleet fleet = fleet_of(0);
    attempt_begun(&fleet, 1);
    assert_int_equal(retried(&fleet, 30, 1), RETRY_FLOOR);
    assert_int_equal(atomic_load(&refused.value), 30 - RETRY_FLOOR);
}

static void more_are_in_proportion(void **state)
{
    (void)state;
    struct fleet fleet = fleet_of(200);
    for (unsigned i = 0; i < 1000; i++)
        attempt_begun(&fleet, 1);
    assert_int_equal(retried(&fleet, 1000, 1), 200);
}

static void what_was_long_ago_does_not_count(void **state)
{
    (void)state;
    struct fleet fleet = fleet_of(100);
    uint64_t now = 7 * RETRY_HALF;
    for (unsigned i = 0; i < 1000; i++)
        attempt_begun(&fleet, now);
    assert_int_equal(retried(&fleet, 1000, now), 100);
    /* in the window's other half they do still */
    assert_int_equal(retried(&fleet, 100, now + RETRY_HALF), 0);
    for (unsigned i = 0; i < 500; i++)
        attempt_begun(&fleet, now + RETRY_HALF);
    assert_int_equal(retried(&fleet, 100, now + RETRY_HALF), 50);
    /* the first half is gone: 500 requests and 50 retries are left */
    assert_int_equal(retried(&fleet, 10, now + 2 * RETRY_HALF), 0);
    /* and after a pause there is nothing but the floor */
    assert_int_equal(retried(&fleet, 100, now + 4 * RETRY_HALF), RETRY_FLOOR);
    assert_int_equal(fleet.requests[0] + fleet.requests[1], 0);
}

static void failures_and_statuses_are_what_retry_names(void **state)
{
    (void)state;
    assert_int_equal(attempt_kind(R_UPSTREAM_CONNECT), RETRY_CONNECT);
    assert_int_equal(attempt_kind(R_UPSTREAM_TIMEOUT_CONNECT), RETRY_CONNECT);
    assert_int_equal(attempt_kind(R_UPSTREAM_RESET), RETRY_RESET);
    assert_int_equal(attempt_kind(R_UPSTREAM_TIMEOUT_RESPONSE), RETRY_TIMEOUT);
    assert_int_equal(attempt_kind(R_UPSTREAM_PROTOCOL), 0); /* it would say so again */
    assert_int_equal(attempt_kind(R_UPSTREAM_OVERFLOW), 0);
    assert_int_equal(attempt_status_kind(502), RETRY_502);
    assert_int_equal(attempt_status_kind(503), RETRY_503);
    assert_int_equal(attempt_status_kind(504), RETRY_504);
    assert_int_equal(attempt_status_kind(500), 0);
    assert_int_equal(attempt_status_kind(200), 0);
}

/* ---- choosing ---- */

#define SERVERS 3

static struct loop at_loop;
static struct h1_client idle_client;
static struct permits taken[SERVERS];
static struct pool rooms[SERVERS];

/* A pool of each server, 'u' for what can be used, 'b' busy, 'd' down. */
static struct fleet fleet_with(const char *states, struct cluster_spec spec, const int *weights)
{
    static struct pool *pools[SERVERS];
    cluster = cluster_made(spec, weights);
    at_loop.now = 100;
    for (unsigned i = 0; i < SERVERS; i++) {
        atomic_store(&taken[i].open, 1);
        rooms[i] = (struct pool){.loop = &at_loop,
                                 .permits = {.permits = &taken[i], .limit = 1, .count = 1}};
        if (states[i] == 'u')
            rooms[i].idle_first = &idle_client, rooms[i].idle = 1;
        if (states[i] == 'd')
            rooms[i].backoff_ms = 1, rooms[i].down_until = 101;
        pools[i] = &rooms[i];
    }
    return (struct fleet){.cluster = cluster, .pools = pools};
}

/* Which servers get requests, as letters "abc", when many are sent. */
static const char *picked(const char *states, struct cluster_spec spec, const int *weights,
                          uint64_t hash, const uint32_t words[SERVERS])
{
    static char out[SERVERS + 2];
    struct context cx = {.random = {1, 2}};
    struct fleet fleet = fleet_with(states, spec, weights);
    bool seen[SERVERS + 1] = {false};
    size_t n = 0;
    for (unsigned i = 0; words && i < SERVERS; i++)
        vitals_change(cluster->servers[i].vitals, 0, words[i]);
    for (unsigned i = 0; i < 100; i++) {
        struct tried tried = {0};
        int server = attempt_pick(&cx, &fleet, &tried, hash);
        assert_in_range(server + 1, 0, SERVERS);
        assert_false(tried.bits[0] || tried.regardless); /* only looked at */
        seen[server < 0 ? SERVERS : server] = true;
    }
    for (unsigned i = 0; i <= SERVERS; i++)
        if (seen[i])
            out[n++] = i == SERVERS ? '-' : (char)('a' + i);
    out[n] = '\0';
    tear_down(NULL);
    return out;
}

static const int even[] = {1, 1, 1, 0}, spare[] = {1, 1, -1, 0};

static void takes_who_can_be_used_at_once(void **state)
{
    static const struct {
        const char *states, *picked, *with_spare;
    } cases[] = {
        {"uuu", "abc", "ab"}, {"ubu", "ac", "a"}, {"udu", "ac", "a"}, {"bdu", "c", "c"},
        {"ddu", "c", "c"},    {"bbu", "c", "c"},  {"bdd", "a", "a"}, /* whoever can be waited
                                                                        for, before who does not
                                                                        answer */
        {"dbd", "b", "b"},    {"ddb", "c", "c"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct cluster_spec spec = {.balance = BALANCE_ROUND_ROBIN};
        assert_string_equal(picked(cases[i].states, spec, even, 0, NULL), cases[i].picked);
        assert_string_equal(picked(cases[i].states, spec, spare, 0, NULL), cases[i].with_spare);
        spec.balance = BALANCE_TWO_CHOICES;
        assert_string_equal(picked(cases[i].states, spec, even, 0, NULL), cases[i].picked);
    }
}

/* All busy, or all down: by turns, as the balance has them. */
static void goes_on_by_turns_when_nobody_can_be_used(void **state)
{
    struct cluster_spec spec = {.balance = BALANCE_ROUND_ROBIN};
    (void)state;
    assert_string_equal(picked("bbb", spec, even, 0, NULL), "abc");
    assert_string_equal(picked("ddd", spec, even, 0, NULL), "abc");
}

static void a_key_waits_for_its_server_unless_that_is_down(void **state)
{
    struct cluster_spec spec = {.balance = BALANCE_HASH};
    (void)state;
    uint64_t hash = balance_hash(STR("a key"));
    char home = picked("uuu", spec, even, hash, NULL)[0], states[] = "uuu";
    char *its = &states[home - 'a'];
    *its = 'b';
    assert_int_equal(picked(states, spec, even, hash, NULL)[0], home);
    *its = 'd';
    assert_int_not_equal(picked(states, spec, even, hash, NULL)[0], home);
}

static void who_is_out_is_taken_only_where_that_is_better_than_none(void **state)
{
    static const uint32_t warming[] = {VITAL_WARMING, VITAL_DOWN, VITAL_DRAINING},
                          down[] = {VITAL_DOWN, VITAL_EJECTED, VITAL_DRAINING},
                          drained[] = {VITAL_DRAINING, VITAL_DRAINING, VITAL_DRAINING},
                          one_up[] = {0, VITAL_WARMING, VITAL_DOWN};
    struct cluster_spec spec = {.watch.panic = PANIC_FAIL};
    (void)state;
    assert_string_equal(picked("uuu", spec, even, 0, one_up), "a");
    assert_string_equal(picked("uuu", spec, even, 0, warming), "a");
    assert_string_equal(picked("uuu", spec, even, 0, down), "-");
    spec.watch.panic = PANIC_USE_ALL;
    assert_string_equal(picked("uuu", spec, even, 0, one_up), "a");
    assert_string_equal(picked("uuu", spec, even, 0, warming), "a");
    assert_string_equal(picked("uuu", spec, even, 0, down), "ab");
    assert_string_equal(picked("uuu", spec, even, 0, drained), "-"); /* an order is an order */
}

/* ---- what speaks against a server ---- */

static bool is_ejected_by(enum reason reason, unsigned counts)
{
    fleet_of(0);
    cluster->watch.outlier = (struct outlier_policy){.on = true,
                                                     .failures = 1,
                                                     .max_ejected_permille = 500,
                                                     .eject = 1000,
                                                     .counts = counts};
    attempt_note(cluster, 0, reason, 1);
    bool ejected = vitals_word(cluster->servers[0].vitals) & VITAL_EJECTED;
    tear_down(NULL);
    return ejected;
}

static void only_what_the_server_did_speaks_against_it(void **state)
{
    (void)state;
    assert_true(is_ejected_by(R_UPSTREAM_CONNECT, OUTLIER_CONNECT));
    assert_true(is_ejected_by(R_UPSTREAM_TIMEOUT_CONNECT, OUTLIER_CONNECT));
    assert_true(is_ejected_by(R_UPSTREAM_RESET, OUTLIER_RESET));
    assert_true(is_ejected_by(R_UPSTREAM_TIMEOUT_RESPONSE, OUTLIER_TIMEOUT));
    assert_true(is_ejected_by(R_UPSTREAM_TIMEOUT_IDLE, OUTLIER_TIMEOUT));
    assert_true(is_ejected_by(R_UPSTREAM_TIMEOUT_TOTAL, OUTLIER_TIMEOUT));
    assert_true(is_ejected_by(R_UPSTREAM_PROTOCOL, OUTLIER_PROTOCOL));
    assert_false(is_ejected_by(R_UPSTREAM_RESET, OUTLIER_CONNECT));
    assert_false(is_ejected_by(R_UPSTREAM_OVERFLOW, ~0u));
    assert_false(is_ejected_by(R_CLIENT_ABORT, ~0u));
    assert_false(is_ejected_by(R_NO_MEMORY, ~0u));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_few_are_always_free, tear_down),
        cmocka_unit_test_teardown(more_are_in_proportion, tear_down),
        cmocka_unit_test_teardown(what_was_long_ago_does_not_count, tear_down),
        cmocka_unit_test(failures_and_statuses_are_what_retry_names),
        cmocka_unit_test(takes_who_can_be_used_at_once),
        cmocka_unit_test(goes_on_by_turns_when_nobody_can_be_used),
        cmocka_unit_test(a_key_waits_for_its_server_unless_that_is_down),
        cmocka_unit_test(who_is_out_is_taken_only_where_that_is_better_than_none),
        cmocka_unit_test(only_what_the_server_did_speaks_against_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
