#include "tls_test.h"

/* ---- who is believed ---- */

static void fails_with(const char *client_why)
{
    start();
    UNTIL(client.errors && shaken != 1);
    assert_int_equal(client.connects, 0);
    assert_int_equal(client.err, EPROTO);
    assert_non_null(client.why);
    assert_string_equal(client.why, client_why);
    assert_true(shaken < 0);
}

static void refuses_another_name(void **state)
{
    (void)state;
    peer.name = "b.example";
    fails_with("hostname mismatch");
    part();
    peer.name = "127.0.0.9";
    fails_with("IP address mismatch");
}

static void refuses_an_unknown_authority(void **state)
{
    (void)state;
    back_spec.ca = str_of(stranger.cert_pem);
    fails_with("unable to get local issuer certificate");
}

static void refuses_a_certificate_that_has_ended(void **state)
{
    (void)state;
    struct made old = make_cert("a.example", "DNS:a.example", false, -1, &authority);
    show(0, &old, NULL);
    fails_with("certificate has expired");
    assert_true(tls_front_expiry(front, 0) < time(NULL));
    made_done(&old);
}

static void believes_anything_when_told_to(void **state)
{
    (void)state;
    back_spec.verify = false;
    back_spec.ca = (struct str){NULL, 0};
    peer.name = "wrong.example";
    join();
}

static void knows_the_client_by_its_certificate(void **state)
{
    (void)state;
    front_spec.client_ca = str_of(authority.cert_pem);
    front_spec.client_auth = TLS_CLIENT_REQUIRE;
    back_spec.chain = str_of(client_cert.cert_pem);
    back_spec.key = str_of(client_cert.key_pem);
    join();
    assert_str(facts()->subject, "CN=Ann\\, \\\"the\\\" client\\01");
}

static void refuses_a_client_without_one(void **state)
{
    (void)state;
    front_spec.client_ca = str_of(authority.cert_pem);
    front_spec.client_auth = TLS_CLIENT_REQUIRE;
    start();
    UNTIL(shaken != 1);
    assert_int_equal(shaken, -EPROTO);
    assert_string_equal(server.why, "peer did not return a certificate");
    UNTIL(client.errors); /* TLS 1.3: its own handshake was done by then */
}

static void asks_and_takes_a_client_without_one(void **state)
{
    (void)state;
    front_spec.client_ca = str_of(authority.cert_pem);
    front_spec.client_auth = TLS_CLIENT_REQUEST;
    join();
    assert_null(facts()->subject.p);
}

static void refuses_a_client_of_another_authority(void **state)
{
    (void)state;
    front_spec.client_ca = str_of(authority.cert_pem);
    front_spec.client_auth = TLS_CLIENT_REQUEST;
    back_spec.chain = str_of(stranger.cert_pem);
    back_spec.key = str_of(stranger.key_pem);
    start();
    UNTIL(shaken != 1);
    assert_int_equal(shaken, -EPROTO);
    assert_string_equal(server.why, "self-signed certificate");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(refuses_another_name),
        T(refuses_an_unknown_authority),
        T(refuses_a_certificate_that_has_ended),
        T(believes_anything_when_told_to),
        T(knows_the_client_by_its_certificate),
        T(refuses_a_client_without_one),
        T(asks_and_takes_a_client_without_one),
        T(refuses_a_client_of_another_authority),
    };
    return cmocka_run_group_tests(tests, make_all, unmake_all);
}
