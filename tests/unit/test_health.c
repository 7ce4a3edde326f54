/* Time is told here: deadlines come due when a test says so. Probes are real, to a port that
 * answers by its kernel alone (TCP). */
#include "net_test.h"

#include "up/balance.h"
#include "up/health.h"
#include "up/outlier.h"

#define SERVERS 4

static struct health *health;
static struct cluster *cluster, *other;
static struct addr addrs[SERVERS];
static int listening[SERVERS];
static char told[1024]; /* what on_change said, a letter and a server each */
static struct health_change last;
static unsigned prepared, warmed, drained;
static bool is_slow; /* workers do not become warm by themselves */

static void on_prepared(void *owner)
{
    (void)owner;
    prepared++;
}

static void on_change(void *owner, const struct health_change *change)
{
    (void)owner;
    size_t n = strlen(told);
    snprintf(told + n, sizeof(told) - n, "%c%u ", "duerDR"[change->event], change -> server);
    last = *change;
}

static void warm(void *owner, struct cluster *of, uint32_t server)
{
    (void)owner;
    warmed++;
    assert_true(vitals_word(of->servers[server].vitals) & VITAL_WARMING);
    vitals_warm(of->servers[server].vitals, is_slow ? 2 : 0);
}

static void drain(void *owner, struct cluster *of, uint32_t server)
{
    (void)owner;
    drained++;
    assert_true(vitals_word(of->servers[server].vitals) & VITAL_DRAINING);
}

static const struct health_ops ops = {on_prepared, on_change, warm, drain};

static int set_up(void **state)
{
    if (set_up_loop(state))
        return -1;
    for (int i = 0; i < SERVERS; i++)
        listening[i] = listen_any(&addrs[i]);
    health = health_new(&loop, &ops, NULL);
    told[0] = '\0';
    prepared = warmed = drained = 0;
    is_slow = false;
    return health ? 0 : -1;
}

static void drop_mail(struct message *message)
{
    assert_true(health_drop(message));
}

static int tear_down(void **state)
{
    mem_fail_at(0);
    health_free(health);
    loop_discard(&loop, drop_mail);
    cluster_unref(cluster);
    cluster_unref(other);
    cluster = other = NULL;
    for (int i = 0; i < SERVERS; i++)
        if (listening[i] >= 0)
            close(listening[i]);
    return tear_down_loop(state);
}

static struct cluster *make(struct watch watch, uint32_t count, const struct cluster *before)
{
    struct cluster_server servers[SERVERS];
    struct cluster_spec spec = {.name = "u", .watch = watch, .before = before};
    for (uint32_t i = 0; i < count; i++)
        servers[i] = (struct cluster_server){.addr = addrs[i], .weight = 1};
    struct cluster *made = cluster_new(&spec, servers, count);
    assert_non_null(made);
    return made;
}

static struct watch probing(void)
{
    return (struct watch){
        .health = {.type = HEALTH_TCP, .interval = 1000, .timeout = 500, .rise = 2, .fall = 3}};
}

static struct watch ejecting(void)
{
    return (struct watch){.outlier = {.on = true,
                                      .failures = 1,
                                      .eject = 1000,
                                      .max_eject = 4000,
                                      .window = 1000,
                                      .max_ejected_permille = 500,
                                      .counts = OUTLIER_RESET}};
}

/* It takes effect, once all that is new was probed. */
static void take(struct cluster *now)
{
    unsigned before = prepared;
    int rc;
    IN_LOOP(rc = health_prepare(health, &now, 1));
    assert_true(rc >= 0);
    if (rc > 0)
        UNTIL(prepared > before);
    IN_LOOP(health_switch(health));
}

/* So much later, and what comes of it; deadlines are exact to a tick. */
static void later(uint64_t ms)
{
    uint64_t end = loop.now + (ms + 20) * NS_PER_MS;
    while (loop.now < end) {
        loop.now += 5 * NS_PER_MS;
        wheel_advance(&loop.wheel, loop.now);
    }
    loop_leave(&loop);
}

/* Letters are read without the loop, whose clock is the real one. */
static void read_mail(void)
{
    struct message *message = loop.first_mail;
    loop.first_mail = NULL;
    loop.last_mail = &loop.first_mail;
    while (message) {
        struct message *next = message->next;
        message->run(message);
        message = next;
    }
}

static uint32_t word(uint32_t server)
{
    return vitals_word(cluster->servers[server].vitals);
}

static void eject(uint32_t server)
{
    assert_true(outlier_note(cluster, server, OUTLIER_RESET, loop.now));
    read_mail();
}

/* ---- probes ---- */

static void refuse(int server)
{
    close(listening[server]);
    listening[server] = -1;
}

static void the_first_probe_decides_alone(void **state)
{
    (void)state;
    refuse(1);
    cluster = make(probing(), 3, NULL);
    take(cluster);
    assert_int_equal(prepared, 1);
    assert_string_equal(told, "d1 ");
    assert_string_equal(last.why, "its first probe failed: cannot connect: Connection refused");
    assert_int_equal(last.left, 2);
    assert_int_equal(word(0), 0);
    assert_int_equal(word(1), VITAL_DOWN);
    assert_string_equal(health_why(cluster->servers[1].vitals), last.why);
    assert_int_equal(health_counts(cluster->servers[1].vitals)->probes[PROBE_CONNECT], 1);
    assert_int_equal(health_counts(cluster->servers[0].vitals)->probes[PROBE_OK], 1);
}

static void then_fall_and_rise_count(void **state)
{
    (void)state;
    struct watch watch = probing();
    watch.health.interval = 10;
    cluster = make(watch, 1, NULL);
    take(cluster);
    const uint64_t *probes = health_counts(cluster->servers[0].vitals)->probes;
    refuse(0);
    UNTIL(word(0) & VITAL_DOWN);
    assert_int_equal(probes[PROBE_CONNECT], 3);
    assert_string_equal(told, "d0 ");
    uint64_t back_at = cluster_back_at(cluster);
    assert_in_range(back_at, loop.now, loop.now + 20 * NS_PER_MS); /* two probes to come */
    assert_int_equal(sock_listen(&addrs[0], false, &listening[0]), 0);
    uint64_t well = probes[PROBE_OK];
    UNTIL(!word(0));
    assert_int_equal(probes[PROBE_OK], well + 2);
    assert_string_equal(told, "d0 u0 ");
    assert_string_equal(last.why, "2 probes in a row went well");
    assert_int_equal(warmed, 1);
}

static void without_probes_nothing_is_waited_for(void **state)
{
    (void)state;
    cluster = make((struct watch){.slow_start = 0}, 3, NULL);
    IN_LOOP(assert_int_equal(health_prepare(health, &cluster, 1), 0));
    IN_LOOP(health_switch(health));
    assert_int_equal(prepared, 0);
    assert_string_equal(told, "");
}

static void what_is_forgotten_leaves_nothing(void **state)
{
    (void)state;
    cluster = make(probing(), 2, NULL);
    take(cluster);
    other = make(probing(), 4, cluster);
    IN_LOOP(assert_int_equal(health_prepare(health, &other, 1), 1));
    IN_LOOP(health_forget(health));
    assert_null(other->servers[3].vitals->target);
    assert_non_null(cluster->servers[1].vitals->target);
    settle();
    assert_int_equal(other->refs, 1);
    assert_int_equal(prepared, 1);
}

static void state_passes_to_the_next_cluster_and_ends_with_the_probes(void **state)
{
    (void)state;
    refuse(1);
    cluster = make(probing(), 2, NULL);
    take(cluster);
    struct watch watch = probing();
    watch.health.interval = 2000;
    other = make(watch, 2, cluster);
    take(other);
    assert_int_equal(vitals_word(other->servers[1].vitals), VITAL_DOWN);
    assert_string_equal(told, "d1 ");
    struct cluster *bare = make((struct watch){.slow_start = 0}, 2, other);
    take(bare);
    assert_int_equal(word(1), 0);
    assert_string_equal(told, "d1 u1 ");
    cluster_unref(bare);
}

static void who_is_removed_is_watched_no_more(void **state)
{
    (void)state;
    cluster = make(ejecting(), 4, NULL);
    take(cluster);
    eject(3);
    other = make(ejecting(), 2, cluster);
    take(other);
    assert_null(cluster->servers[3].vitals->target);
    assert_int_equal(word(3), VITAL_GONE);
    assert_int_equal(cluster->ward->ejected, 0);
    assert_false(outlier_note(cluster, 3, OUTLIER_RESET, loop.now));
}

static void an_ejection_that_was_on_its_way_is_undone(void **state)
{
    (void)state;
    cluster = make(ejecting(), 4, NULL);
    take(cluster);
    assert_true(outlier_note(cluster, 3, OUTLIER_RESET, loop.now));
    other = make(ejecting(), 2, cluster);
    int rc;
    rc = health_prepare(health, &other, 1);
    assert_int_equal(rc, 0);
    health_switch(health);
    assert_int_equal(cluster->ward->ejected, 1);
    read_mail();
    assert_int_equal(cluster->ward->ejected, 0);
    assert_int_equal(word(3), VITAL_GONE);
}

/* ---- ejections, in told time ---- */

static void an_ejected_server_returns_when_its_time_is_over(void **state)
{
    (void)state;
    cluster = make(ejecting(), 4, NULL);
    take(cluster);
    eject(2);
    assert_string_equal(told, "e2 ");
    assert_int_equal(last.ms, 1000);
    assert_string_equal(last.why, "1 failure in a row, the last: the connection was closed");
    later(900);
    assert_int_equal(word(2), VITAL_EJECTED);
    later(200);
    assert_int_equal(word(2), 0);
    assert_string_equal(told, "e2 r2 ");
    assert_int_equal(warmed, 1);
    assert_int_equal(cluster->ward->ejected, 0);
}

/* When it may be back, from now, in ms; -1: nobody knows. */
static int back_in(const struct cluster *of)
{
    uint64_t at = cluster_back_at(of);
    return at ? (int)((int64_t)(at - loop.now) / (int64_t)NS_PER_MS) : -1;
}

static void when_it_may_be_back_is_known(void **state)
{
    (void)state;
    struct watch watch = ejecting();
    watch.outlier.max_ejected_permille = 1000;
    cluster = make(watch, 2, NULL);
    take(cluster);
    assert_int_equal(back_in(cluster), -1);
    eject(0);
    int first = back_in(cluster);
    assert_in_range(first, 900, 1000);
    later(400);
    eject(1); /* the first is back first */
    assert_in_range(back_in(cluster), first - 500, first - 400);
    health_drain(health, cluster->servers[0].vitals, true); /* but for who drained it */
    assert_in_range(back_in(cluster), 900, 1000);
    health_drain(health, cluster->servers[0].vitals, false);
    assert_in_range(back_in(cluster), first - 500, first - 400);
    later(1100);
    assert_int_equal(back_in(cluster), -1);
}

static void the_time_grows_and_shrinks(void **state)
{
    (void)state;
    static const uint32_t times[] = {1000, 2000, 4000, 4000};
    cluster = make(ejecting(), 4, NULL);
    take(cluster);
    for (size_t i = 0; i < 4; i++) {
        eject(0);
        assert_int_equal(last.ms, times[i]);
        later(times[i]);
        assert_int_equal(word(0), 0);
    }
    later(3 * 4000);
    eject(0); /* three of four are forgotten */
    assert_int_equal(last.ms, 2000);
    later(2000);
    later(60 * 1000);
    eject(0);
    assert_int_equal(last.ms, 1000);
}

static void reasons_are_independent(void **state)
{
    (void)state;
    cluster = make(ejecting(), 4, NULL);
    take(cluster);
    eject(0);
    health_drain(health, cluster->servers[0].vitals, true);
    assert_int_equal(drained, 1);
    later(1100);
    assert_int_equal(word(0), VITAL_DRAINING);
    assert_int_equal(warmed, 0);
    health_drain(health, cluster->servers[0].vitals, false);
    assert_int_equal(word(0), 0);
    assert_int_equal(warmed, 1);
    assert_string_equal(told, "e0 D0 r0 R0 ");
    health_drain(health, cluster->servers[0].vitals, false); /* it is already */
    assert_string_equal(told, "e0 D0 r0 R0 ");
}

/* In real time, as its probes are. */
static void who_is_ejected_and_fails_its_probes_stays(void **state)
{
    (void)state;
    struct watch watch = ejecting();
    watch.health = probing().health;
    watch.health.interval = 10;
    watch.health.fall = 1000;
    watch.outlier.eject = 20;
    cluster = make(watch, 2, NULL);
    take(cluster);
    const uint64_t *probes = health_counts(cluster->servers[0].vitals)->probes;
    refuse(0);
    UNTIL(probes[PROBE_CONNECT]);
    eject(0);
    UNTIL(probes[PROBE_CONNECT] == 10);
    assert_int_equal(word(0), VITAL_EJECTED);
    assert_int_equal(sock_listen(&addrs[0], false, &listening[0]), 0);
    UNTIL(!word(0));
    assert_true(probes[PROBE_OK] > 1);
    assert_string_equal(told, "e0 r0 ");
}

/* ---- coming back ---- */

static void comes_back_when_the_workers_are_warm(void **state)
{
    (void)state;
    cluster = make(ejecting(), 4, NULL);
    take(cluster);
    is_slow = true;
    eject(0);
    later(1000);
    assert_int_equal(word(0), VITAL_WARMING);
    vitals_warmed(cluster->servers[0].vitals);
    later(100);
    assert_int_equal(word(0), VITAL_WARMING);
    vitals_warmed(cluster->servers[0].vitals);
    assert_int_equal(word(0), 0);
}

static void workers_are_not_waited_for_for_ever(void **state)
{
    (void)state;
    cluster = make(ejecting(), 4, NULL);
    take(cluster);
    is_slow = true;
    eject(0);
    later(1000);
    later(2500);
    assert_int_equal(word(0), VITAL_WARMING);
    later(1000);
    assert_int_equal(word(0), 0);
}

static void eases_in(void **state)
{
    (void)state;
    struct watch watch = ejecting();
    watch.slow_start = 10000;
    cluster = make(watch, 4, NULL);
    take(cluster);
    assert_int_equal(word_ease(word(0)), EASE_FULL); /* all begin at the same time */
    eject(0);
    later(1000);
    uint32_t ease = word_ease(word(0));
    assert_in_range(ease, EASE_FULL / 10, EASE_FULL / 5);
    for (int second = 1; second < 9; second++) {
        later(1000);
        assert_in_range(word_ease(word(0)) - ease, 70, 130);
        ease = word_ease(word(0));
    }
    later(2000);
    assert_int_equal(word(0), 0);
}

static void going_out_again_ends_it(void **state)
{
    (void)state;
    struct watch watch = ejecting();
    watch.slow_start = 10000;
    cluster = make(watch, 4, NULL);
    take(cluster);
    eject(0);
    later(1500);
    assert_true(word_ease(word(0)) < EASE_FULL);
    health_drain(health, cluster->servers[0].vitals, true);
    later(20000);
    assert_int_equal(word(0), VITAL_DRAINING);
}

static void who_joins_others_eases_in(void **state)
{
    (void)state;
    struct watch watch = {.slow_start = 10000};
    other = make(watch, 2, NULL);
    take(other);
    cluster = make(watch, 4, other);
    take(cluster);
    assert_int_equal(word(0), 0);
    assert_in_range(word_ease(word(3)), EASE_FULL / 10, EASE_FULL / 5);
    later(11000);
    assert_int_equal(word(3), 0);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    cluster = make(ejecting(), 4, NULL);
    for (unsigned long n = 1; n <= 4; n++) {
        mem_fail_at(n);
        assert_int_equal(health_prepare(health, &cluster, 1), -ENOMEM);
        mem_fail_at(0);
        assert_int_equal(cluster->refs, 1);
        for (uint32_t i = 0; i < 4; i++)
            assert_null(cluster->servers[i].vitals->target);
    }
    mem_fail_at(1);
    assert_null(health_new(&loop, &ops, NULL));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_first_probe_decides_alone),
        TEST(then_fall_and_rise_count),
        TEST(without_probes_nothing_is_waited_for),
        TEST(what_is_forgotten_leaves_nothing),
        TEST(state_passes_to_the_next_cluster_and_ends_with_the_probes),
        TEST(who_is_removed_is_watched_no_more),
        TEST(an_ejection_that_was_on_its_way_is_undone),
        TEST(an_ejected_server_returns_when_its_time_is_over),
        TEST(when_it_may_be_back_is_known),
        TEST(the_time_grows_and_shrinks),
        TEST(reasons_are_independent),
        TEST(who_is_ejected_and_fails_its_probes_stays),
        TEST(comes_back_when_the_workers_are_warm),
        TEST(workers_are_not_waited_for_for_ever),
        TEST(eases_in),
        TEST(going_out_again_ends_it),
        TEST(who_joins_others_eases_in),
        TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("health", tests, NULL, NULL);
}
