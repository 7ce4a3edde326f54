#include "dns_test.h"

#include <stdlib.h>

#include "up/dns.h"

struct asked {
    struct dns_query query;
    struct dns_answer answer;
    unsigned times;
};

static void on_answer(struct dns_query *query, const struct dns_answer *answer)
{
    struct asked *asked = (struct asked *)query;
    asked->answer = *answer;
    asked->times++;
}

static struct asked ask(sa_family_t family, uint64_t ms)
{
    struct dns *dns = dns_new(&ns.addr, 1);
    struct asked asked = {.query = {.family = family, .on_answer = on_answer}};
    assert_non_null(dns);
    dns_ask(dns, "a.test.", &asked.query);
    dns_wait(dns, ms);
    assert_int_equal(asked.times, 1);
    dns_free(dns);
    assert_int_equal(asked.times, 1);
    return asked;
}

static void expect_addrs(const struct dns_answer *answer, const char *expected)
{
    char text[4096] = "", one[ADDR_TEXT];
    for (size_t i = 0; i < answer->count; i++) {
        addr_put_host(one, &answer->addrs[i]);
        sprintf(text + strlen(text), "%s%s", i ? " " : "", one);
    }
    assert_string_equal(text, expected);
}

static void answers_are_sorted_and_each_address_once(void **state)
{
    (void)state;
    ns_say("10.0.0.3 10.0.0.1 10.0.0.3 ::5 ::4 10.0.0.2 10.0.0.1", SAYS_ADDRS, SAYS_ADDRS);
    struct asked four = ask(AF_INET, 5000), six = ask(AF_INET6, 5000);
    assert_int_equal(four.answer.verdict, DNS_FOUND);
    assert_int_equal(four.answer.ttl_s, 1);
    expect_addrs(&four.answer, "10.0.0.1 10.0.0.2 10.0.0.3");
    expect_addrs(&six.answer, "::4 ::5");
}

static void every_kind_of_failure_has_its_verdict(void **state)
{
    (void)state;
    static const struct {
        enum dns_says says;
        enum dns_verdict verdict;
        const char *why;
    } cases[] = {
        {SAYS_NXDOMAIN, DNS_NONE, "there is no such name"},
        {SAYS_ADDRS, DNS_NONE, "the name has no address"},
        {SAYS_SERVFAIL, DNS_FAILED, NULL},
        {SAYS_GARBAGE, DNS_FAILED, NULL},
        {SAYS_NOTHING, DNS_FAILED, "no DNS server answered in time"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        ns_say("", cases[i].says, cases[i].says);
        struct asked asked = ask(AF_INET, 300);
        assert_int_equal(asked.answer.verdict, cases[i].verdict);
        assert_int_equal(asked.answer.count, 0);
        assert_non_null(asked.answer.why);
        if (cases[i].why)
            assert_string_equal(asked.answer.why, cases[i].why);
    }
}

static void waiting_ends_when_its_time_is_up(void **state)
{
    (void)state;
    ns_say("", SAYS_NOTHING, SAYS_NOTHING);
    uint64_t before = clock_ns();
    ask(AF_INET, 100);
    uint64_t ms = (clock_ns() - before) / NS_PER_MS;
    assert_in_range(ms, 100, 5000);
}

/* Fault on demand: late is late, but asked, answered and bounded all the same. */
static void dns_may_be_slow(void **state)
{
    (void)state;
    setenv("POSTERN_FAULT", "dns:150", 1);
    ns_say("10.0.0.1", SAYS_ADDRS, SAYS_ADDRS);
    uint64_t before = clock_ns();
    struct asked four = ask(AF_INET, 5000);
    uint64_t ms = (clock_ns() - before) / NS_PER_MS;
    expect_addrs(&four.answer, "10.0.0.1");
#ifndef NDEBUG
    assert_in_range(ms, 150, 5000);
    struct asked late = ask(AF_INET, 50);
    assert_int_equal(late.answer.verdict, DNS_FAILED);
    assert_string_equal(late.answer.why, "no DNS server answered in time");
#else
    (void)ms;
#endif
    struct dns *dns = dns_new(&ns.addr, 1);
    struct asked never = {.query = {.family = AF_INET, .on_answer = on_answer}};
    dns_ask(dns, "a.test.", &never.query);
    dns_free(dns); /* held or not, nobody hears of it */
    assert_int_equal(never.times, 0);
    unsetenv("POSTERN_FAULT");
}

static void what_runs_when_it_is_freed_is_not_answered(void **state)
{
    (void)state;
    struct dns *dns = dns_new(&ns.addr, 1);
    struct asked asked = {.query = {.family = AF_INET, .on_answer = on_answer}};
    ns_say("", SAYS_NOTHING, SAYS_NOTHING);
    unsigned before = ns_asked();
    dns_ask(dns, "a.test.", &asked.query);
    dns_free(dns);
    assert_int_equal(asked.times, 0);
    dns_free(NULL);
    /* its question is on its way all the same, and the next test counts questions */
    for (int i = 0; ns_asked() == before && i < 10000; i++)
        usleep(1000);
    assert_int_not_equal(ns_asked(), before);
}

static void hosts_are_of_both_families(void **state)
{
    (void)state;
    struct dns *dns = dns_new(&ns.addr, 1);
    struct dns_answer answer;
    unsigned asked = ns_asked();
    assert_true(dns_hosts(dns, "localhost", &answer));
    assert_true(answer.count >= 1);
    assert_int_equal(answer.addrs[0].in4.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    assert_false(dns_hosts(dns, "surely-not-there.test", &answer));
    assert_int_equal(ns_asked(), asked);
    dns_free(dns);
}

static struct loop loop;

static void on_loop_answer(struct dns_query *query, const struct dns_answer *answer)
{
    on_answer(query, answer);
    loop_stop(&loop);
}

/* Answered, and given up by c-ares' own time limit: both come through the loop. */
static void answers_come_in_on_a_loop(void **state)
{
    (void)state;
    assert_int_equal(loop_init(&loop), 0);
    struct dns *dns = dns_new(&ns.addr, 1);
    dns_attach(dns, &loop);
    struct asked asked = {.query = {.family = AF_INET, .on_answer = on_loop_answer}};
    ns_say("10.0.0.1", SAYS_ADDRS, SAYS_ADDRS);
    dns_ask(dns, "a.test.", &asked.query);
    loop_run(&loop);
    expect_addrs(&asked.answer, "10.0.0.1");
    ns_say("", SAYS_NOTHING, SAYS_NOTHING);
    loop_enter(&loop);
    dns_ask(dns, "a.test.", &asked.query);
    loop_run(&loop);
    assert_int_equal(asked.answer.verdict, DNS_FAILED);
    dns_ask(dns, "a.test.", &asked.query);
    dns_free(dns); /* with a socket that the loop watches */
    loop_done(&loop);
    assert_int_equal(asked.times, 2);
}

struct asked_services {
    struct dns_services_query query;
    struct dns_services answer;
    unsigned times;
};

static void on_services(struct dns_services_query *query, const struct dns_services *answer)
{
    struct asked_services *asked = (struct asked_services *)query;
    asked->answer = *answer;
    asked->times++;
}

static struct dns_services ask_services(void)
{
    struct dns *dns = dns_new(&ns.addr, 1);
    struct asked_services asked = {.query = {.on_answer = on_services}};
    assert_non_null(dns);
    dns_ask_services(dns, "_http._tcp.a.test.", &asked.query);
    dns_wait(dns, 2000);
    dns_free(dns);
    assert_int_equal(asked.times, 1);
    return asked.answer;
}

static void expect_services(const char *says, const char *expected)
{
    char text[8192] = "";
    ns_say_services(says, SAYS_ADDRS);
    struct dns_services answer = ask_services();
    assert_int_equal(answer.verdict, DNS_FOUND);
    assert_null(answer.why);
    assert_int_equal(answer.ttl_s, 1);
    for (size_t i = 0; i < answer.count; i++)
        sprintf(text + strlen(text), "%s%u %u %u %s", i ? ";" : "", answer.list[i].priority,
                answer.list[i].weight, answer.list[i].port, answer.list[i].host);
    assert_string_equal(text, expected);
}

static void services_are_sorted_and_each_once(void **state)
{
    (void)state;
    expect_services("10 1 80 b.test;0 65535 65535 c.test;10 2 80 a.test;10 9 80 B.test",
                    "0 65535 65535 c.test;10 2 80 a.test;10 1 80 b.test");
}

static void services_that_cannot_be_asked_are_left_out(void **state)
{
    (void)state;
    expect_services("0 1 0 a.test;0 1 80 -.test;0 1 80 10.0.0.1;0 1 80 .;0 1 80 b.test",
                    "0 1 80 b.test");
    expect_services("0 0 0 .", ""); /* there is no such service */
    ns_say_services("0 1 0 a.test", SAYS_ADDRS);
    struct dns_services answer = ask_services();
    assert_int_equal(answer.verdict, DNS_FAILED);
    assert_string_equal(answer.why, "the answer has no record of use");
}

static void failures_of_services_have_their_verdict(void **state)
{
    (void)state;
    static const struct {
        enum dns_says says;
        enum dns_verdict verdict;
        const char *why;
    } cases[] = {
        {SAYS_NXDOMAIN, DNS_NONE, "there is no such name"},
        {SAYS_ADDRS, DNS_NONE, "the name has no SRV record"},
        {SAYS_SERVFAIL, DNS_FAILED, NULL},
        {SAYS_GARBAGE, DNS_FAILED, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        ns_say_services("", cases[i].says);
        struct dns_services answer = ask_services();
        assert_int_equal(answer.verdict, cases[i].verdict);
        assert_non_null(answer.why);
        if (cases[i].why)
            assert_string_equal(answer.why, cases[i].why);
    }
}

static void malformed_services_are_refused_whole(void **state)
{
    (void)state;
    /* Each record: 12 bytes in front, 6 of numbers, 8 of the name. */
    ns_say_services("0 1 80 a.test;0 1 80 b.test", SAYS_ADDRS);
    for (size_t cut = 1; cut <= 52; cut++) {
        ns_spoil(cut, 0);
        struct dns_services answer = ask_services();
        assert_int_equal(answer.verdict, DNS_FAILED);
        assert_non_null(answer.why);
    }
    for (size_t at = 1; at <= 52; at++) {
        ns_spoil(0, at);
        struct dns_services answer = ask_services();
        assert_true(answer.count <= 2 && (answer.verdict == DNS_FOUND || answer.why));
        if (at == 11 || at == 12 || at == 19) /* the length of the data, and of a label */
            assert_int_equal(answer.verdict, DNS_FAILED);
    }
    ns_spoil(0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_sorted_and_each_address_once),
        cmocka_unit_test(every_kind_of_failure_has_its_verdict),
        cmocka_unit_test(waiting_ends_when_its_time_is_up),
        cmocka_unit_test(dns_may_be_slow),
        cmocka_unit_test(what_runs_when_it_is_freed_is_not_answered),
        cmocka_unit_test(hosts_are_of_both_families),
        cmocka_unit_test(answers_come_in_on_a_loop),
        cmocka_unit_test(services_are_sorted_and_each_once),
        cmocka_unit_test(services_that_cannot_be_asked_are_left_out),
        cmocka_unit_test(failures_of_services_have_their_verdict),
        cmocka_unit_test(malformed_services_are_refused_whole),
    };
    return cmocka_run_group_tests_name("dns", tests, ns_start, ns_stop);
}
