/* Retries in proportion, and what is what; choosing a server is in scenario tests, for it needs
 * pools. */
#include "up_test.h"

#include "proxy/attempt.h"
#include "up/outlier.h"

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
        cmocka_unit_test(only_what_the_server_did_speaks_against_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
