#include "proxy/forwarded.h"

#include "forward_test.h"

static void check_client(const char *options, const char *peer_ip, const char *extra,
                         const char *expected)
{
    char request[4096];
    begin_with(options, "", "", peer_ip);
    snprintf(request, sizeof(request), "GET / HTTP/1.1\r\nHost: h\r\n%s\r\n", extra);
    assert_int_equal(identify(request), R_NONE);
    if (!str_eq(ex.client_ip, str_of(expected)))
        fail_msg("%s from %s: expected %s, got %.*s", extra, peer_ip, expected,
                 (int)ex.client_ip.n, ex.client_ip.p);
    end();
}

static void the_client_is_the_right_most_that_no_proxy_is(void **state)
{
    (void)state;
    const char *x = "forwarded = x_forwarded";
    check_client(x, "192.0.2.7", "X-Forwarded-For: 1.1.1.1\r\n", "192.0.2.7");
    check_client(x, "10.0.0.1", "", "10.0.0.1");
    check_client(x, "10.0.0.1", "X-Forwarded-For: 1.1.1.1, 2.2.2.2\r\n", "2.2.2.2");
    check_client(x, "10.0.0.1", "X-Forwarded-For: 1.1.1.1,10.9.9.9\r\n", "1.1.1.1");
    check_client(x, "10.0.0.1", "X-Forwarded-For: 10.1.1.1, 10.9.9.9\r\n", "10.1.1.1");
    check_client(x, "10.0.0.1", "X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-For: 10.2.2.2\r\n",
                 "1.1.1.1");
    check_client(x, "10.0.0.1", "X-Forwarded-For: 1.1.1.1, junk, 10.2.2.2\r\n", "10.2.2.2");
    check_client(x, "fd00::1", "X-Forwarded-For: 2001:db8::9\r\n", "2001:db8::9");
    check_client(x, "10.0.0.1", "X-Forwarded-For: 1.1.1.1, ,10.2.2.2,\r\n", "1.1.1.1");
    check_client(x, "10.0.0.1", "X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-For: ,\r\n",
                 "1.1.1.1");
    check_client(x, "10.0.0.1", "X-Forwarded-For: 1.1.1.1:80, 10.2.2.2:4711\r\n", "1.1.1.1");
    check_client(x, "10.0.0.1", "X-Forwarded-For: 2001:DB8::9, [fd00::2]:80\r\n",
                 "2001:db8::9");
    check_client(x, "10.0.0.1", "Forwarded: for=3.3.3.3\r\n", "10.0.0.1");
}

static void rfc_7239_is_read_with_its_quotes(void **state)
{
    (void)state;
    const char *r = "forwarded = rfc7239";
    check_client(r, "192.0.2.7", "Forwarded: for=1.1.1.1\r\n", "192.0.2.7");
    check_client(r, "10.0.0.1", "Forwarded: for=1.1.1.1, for=2.2.2.2\r\n", "2.2.2.2");
    check_client(r, "10.0.0.1", "Forwarded: for=1.1.1.1, For=10.2.2.2;proto=https\r\n",
                 "1.1.1.1");
    check_client(r, "10.0.0.1", "Forwarded: proto=http;by=10.1.1.1;for=\"2.2.2.2:80\"\r\n",
                 "2.2.2.2");
    check_client(r, "10.0.0.1", "Forwarded: for=\"[2001:db8:cafe::17]:4711\"\r\n",
                 "2001:db8:cafe::17");
    check_client(r, "10.0.0.1", "Forwarded: for=1.1.1.1;host=\"a,for=9.9.9.9\"\r\n", "1.1.1.1");
    check_client(r, "10.0.0.1", "Forwarded: for=1.1.1.1;host=\"a\\\",for=9.9.9.9\"\r\n",
                 "1.1.1.1");
    check_client(r, "10.0.0.1", "Forwarded: for=1.1.1.1,,for=10.2.2.2,\r\n", "1.1.1.1");
    check_client(r, "10.0.0.1", "Forwarded: for=1.1.1.1\r\nForwarded: for=10.2.2.2\r\n",
                 "1.1.1.1");
    check_client(r, "10.0.0.1", "Forwarded: for=1.1.1.1, for=unknown\r\n", "10.0.0.1");
    check_client(r, "10.0.0.1", "Forwarded: for=1.1.1.1, for=_hidden, for=10.3.3.3\r\n",
                 "10.3.3.3");
    check_client(r, "10.0.0.1", "Forwarded: for=1.1.1.1, proto=http\r\n", "10.0.0.1");
    check_client(r, "10.0.0.1", "Forwarded: for=1.1.1.1;host=\"open, for=10.2.2.2\r\n",
                 "1.1.1.1");
    check_client(r, "10.0.0.1", "X-Forwarded-For: 3.3.3.3\r\n", "10.0.0.1");
}

static void of_both_the_one_that_is_there_counts(void **state)
{
    (void)state;
    check_client("forwarded = both", "10.0.0.1",
                 "Forwarded: for=1.1.1.1\r\nX-Forwarded-For: 2.2.2.2\r\n", "2.2.2.2");
    check_client("forwarded = both", "10.0.0.1", "Forwarded: for=1.1.1.1\r\n", "1.1.1.1");
}

/* A chain longer than what is looked at ends at a proxy, never at what stands left of it. */
static void a_very_long_chain_is_not_followed_to_its_end(void **state)
{
    (void)state;
    for (int hops = 62; hops < 67; hops++) {
        char extra[4096] = "Forwarded: for=9.9.9.9\r\nForwarded: for=1.1.1.1";
        size_t n = strlen(extra);
        for (int i = 0; i < hops; i++)
            n += (size_t)sprintf(extra + n, ",for=10.0.0.%d", 100 + i);
        strcpy(extra + n, "\r\nForwarded: for=10.9.9.9\r\n");
        char last[32];
        snprintf(last, sizeof(last), "10.0.0.%d", 100 + hops - 64);
        check_client("forwarded = rfc7239", "10.0.0.1", extra, hops < 64 ? "1.1.1.1" : last);
    }
}

static void says_it_as_the_listener_wants(void **state)
{
    (void)state;
    begin_with("forwarded = rfc7239", "", "", "192.0.2.7");
    const char *out = forwarded("GET / HTTP/1.1\r\nHost: h.example:80\r\n"
                                "X-Forwarded-For: 1.1.1.1\r\nForwarded: for=2.2.2.2\r\n\r\n");
    assert_has(out, "\nForwarded: for=192.0.2.7;host=\"h.example:80\";proto=http\n");
    assert_lacks(out, "x-forwarded-");
    assert_lacks(out, "2.2.2.2");
    end();
    begin_with("forwarded = both", "", "", "fd00::1");
    out = forwarded("GET / HTTP/1.1\r\nHost: h\r\nForwarded: for=1.1.1.1\r\n"
                    "Forwarded: for=\"_a,b\"\r\nX-Forwarded-For: 2.2.2.2\r\n\r\n");
    assert_has(out, "\nForwarded: for=1.1.1.1, for=\"_a,b\", "
                    "for=\"[fd00::1]\";host=h;proto=http\n");
    assert_has(out, "\nX-Forwarded-For: 2.2.2.2, fd00::1\n");
    assert_has(out, "\nX-Forwarded-Proto: http\nX-Forwarded-Host: h\n");
    end();
}

static void the_other_kind_passes_from_trusted_proxies_alone(void **state)
{
    (void)state;
    const char *request = "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 1.1.1.1\r\n"
                          "X-Forwarded-Proto: https\r\nForwarded: for=2.2.2.2\r\n\r\n";
    begin_with("forwarded = rfc7239", "", "", "10.0.0.1");
    const char *out = forwarded(request);
    assert_has(out, "\nX-Forwarded-For: 1.1.1.1\n");
    assert_has(out, "\nX-Forwarded-Proto: https\n");
    assert_has(out, "\nForwarded: for=2.2.2.2, for=10.0.0.1;host=h;proto=http\n");
    end();
    begin_with("forwarded = x_forwarded", "", "", "10.0.0.1");
    assert_has(forwarded(request), "\nForwarded: for=2.2.2.2\n");
    end();
}

static void knows_the_port_of_the_peer_alone(void **state)
{
    (void)state;
    char text[ADDR_TEXT];
    begin_with("", "", "", "10.0.0.1");
    peer.addr.in4.sin_port = htons(4711);
    assert_int_equal(identify("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), R_NONE);
    struct addr client = forwarded_client(&ex);
    addr_put(text, &client);
    assert_string_equal(text, "10.0.0.1:4711");
    ex.client_ip = STR("2001:db8::9");
    client = forwarded_client(&ex);
    addr_put(text, &client);
    assert_string_equal(text, "[2001:db8::9]:0");
    end();
}

static void believes_of_proto_and_host_what_trusted_proxies_say(void **state)
{
    (void)state;
    static const struct {
        const char *peer, *fields, *host;
        bool is_https;
    } cases[] = {
        {"10.0.0.1", "X-Forwarded-Proto: https\r\nX-Forwarded-Host: shop:81\r\n", "shop:81",
         true},
        {"10.0.0.1", "X-Forwarded-Proto: HTTPS, http\r\nX-Forwarded-Host: a, b\r\n", "a", true},
        {"10.0.0.1", "X-Forwarded-Proto: http\r\nX-Forwarded-Host: a/b\r\n", "h:80", false},
        {"10.0.0.1", "", "h:80", false},
        {"192.0.2.7", "X-Forwarded-Proto: https\r\nX-Forwarded-Host: a\r\n", "h:80", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char request[256];
        begin_with("", "", "", cases[i].peer);
        snprintf(request, sizeof(request), "GET / HTTP/1.1\r\nHost: h:80\r\n%s\r\n",
                 cases[i].fields);
        assert_int_equal(identify(request), R_NONE);
        assert_true(forwarded_is_https(&ex) == cases[i].is_https);
        assert_str(forwarded_host(&ex), cases[i].host);
        end();
    }
    struct tls_facts tls = {0};
    begin_with("", "", "", "10.0.0.1");
    peer.tls = &tls;
    identify("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_true(forwarded_is_https(&ex));
    identify("GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Proto: http\r\n\r\n");
    assert_false(forwarded_is_https(&ex));
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(believes_of_proto_and_host_what_trusted_proxies_say),
        cmocka_unit_test(the_client_is_the_right_most_that_no_proxy_is),
        cmocka_unit_test(rfc_7239_is_read_with_its_quotes),
        cmocka_unit_test(of_both_the_one_that_is_there_counts),
        cmocka_unit_test(a_very_long_chain_is_not_followed_to_its_end),
        cmocka_unit_test(says_it_as_the_listener_wants),
        cmocka_unit_test(the_other_kind_passes_from_trusted_proxies_alone),
        cmocka_unit_test(knows_the_port_of_the_peer_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
