#include "tls_test.h"

/* ---- names ---- */

static void shows_the_certificate_of_the_name(void **state)
{
    (void)state;
    show(1, &other, NULL);
    peer.name = "b.example";
    join();
    assert_true(tls_covers(facts(), STR("b.example")));
    part();
    peer.name = "deep.A.example"; /* a wildcard, whatever the case */
    join();
    assert_true(tls_covers(facts(), STR("a.example")));
    part();
    peer.name = "127.0.0.1"; /* asks for no name: the first */
    join();
    assert_null(facts()->sni.p);
    assert_true(tls_covers(facts(), STR("a.example")));
}

static void a_title_is_a_name_too(void **state)
{
    (void)state;
    show(1, &other, "C.example");
    peer.name = "c.example";
    back_spec.verify = false; /* the certificate does not have it */
    join();
    assert_true(tls_covers(facts(), STR("b.example")));
}

static void two_kinds_stand_side_by_side(void **state)
{
    (void)state;
    show(1, &rsa, NULL);
    make_contexts();
    join();
    assert_true(tls_covers(facts(), STR("www.a.example"))); /* only the ECDSA one */
    part();
    tls_front_unref(front);
    front = NULL;
    front_spec.ciphers = "ECDHE-RSA-AES128-GCM-SHA256";
    front_spec.ciphersuites = "TLS_AES_256_GCM_SHA384";
    join();
    assert_str(facts()->cipher, "TLS_AES_256_GCM_SHA384");
}

/* ---- sessions ---- */

static void resume_once(bool expected)
{
    part();
    join();
    assert_int_equal(tls_is_resumed(server.stream.tls), expected);
    IN_LOOP(stream_write(&server.stream, "x", 1)); /* brings the tickets */
    UNTIL(client.n == 1);
}

static void a_session_goes_on(void **state)
{
    (void)state;
    join();
    IN_LOOP(stream_write(&server.stream, "x", 1));
    UNTIL(client.n == 1);
    for (int i = 0; i < 5; i++)
        resume_once(true);
}

static void a_session_goes_on_with_a_new_context_of_the_same_listener(void **state)
{
    (void)state;
    join();
    IN_LOOP(stream_write(&server.stream, "x", 1));
    UNTIL(client.n == 1);
    struct tls_front *old = front;
    front_spec.before = old;
    front = tls_front_new(&front_spec, on_front_fault, NULL);
    tls_front_unref(old);
    resume_once(true);
    front_spec.before = NULL; /* other keys */
    tls_front_unref(front);
    front = NULL;
    resume_once(false);
    resume_once(true);
}

static void a_session_is_not_another_listeners(void **state)
{
    (void)state;
    char keys[TLS_TICKET_KEY];
    memset(keys, 'k', sizeof(keys));
    front_spec.ticket_keys = (struct str){keys, sizeof(keys)};
    join();
    IN_LOOP(stream_write(&server.stream, "x", 1));
    UNTIL(client.n == 1);
    tls_front_unref(front);
    front = NULL;
    resume_once(true); /* another gateway with the same file */
    tls_front_unref(front);
    front = NULL;
    front_spec.name = "internal";
    resume_once(false);
}

#define HOUR (3600ull * 1000000000ull)

static void keys_rotate_and_old_ones_open_for_a_while(void **state)
{
    (void)state;
    join();
    IN_LOOP(stream_write(&server.stream, "x", 1));
    UNTIL(client.n == 1);
    uint64_t now = 1;
    for (int hours = 0; hours < 3; hours++) { /* the key of the first is the last of three */
        tls_front_tick(front, now);
        now += HOUR;
    }
    resume_once(true);
    for (int hours = 0; hours < 3; hours++) {
        tls_front_tick(front, now);
        now += HOUR;
    }
    resume_once(false);
}

/* ---- faults ---- */

static void refuses(const char *expected)
{
    faults[0] = '\0';
    assert_null(tls_front_new(&front_spec, on_front_fault, NULL));
    assert_string_equal(faults, expected);
}

static void tells_what_is_wrong_with_a_certificate(void **state)
{
    (void)state;
    shown[0].key = str_of(rsa.key_pem);
    refuses("[0 key: does not fit the certificate: it belongs to another one]");
    shown[0].key = STR("nonsense");
    refuses("[0 key: holds no private key, expected PEM (-----BEGIN PRIVATE KEY-----)]");
    show(0, &ecdsa, NULL);
    shown[0].chain = STR("");
    refuses("[0 chain: holds no certificate, expected PEM (-----BEGIN CERTIFICATE-----)]");
    show(0, &ecdsa, NULL);
    shown[0].chain.n -= 40;
    refuses("[0 chain: holds no certificate, expected PEM (-----BEGIN CERTIFICATE-----)]");
    show(0, &ecdsa, NULL);
    shown[0].ocsp = STR("no response");
    refuses("[0 ocsp: holds no OCSP response, expected DER of a successful one]");
    show(0, &ecdsa, "a.example");
    show(1, &other, "A.example");
    refuses("[1 -: is the second ECDSA certificate of that name]");
}

static void tells_what_is_wrong_with_a_chain(void **state)
{
    (void)state;
    char text[8192];
    snprintf(text, sizeof(text), "%s%s", ecdsa.cert_pem, other.cert_pem);
    shown[0].chain = str_of(text);
    refuses("[0 chain: has certificates out of order: each must be signed by the next, the "
            "server's own first]");
    snprintf(text, sizeof(text), "%s%s", ecdsa.cert_pem, authority.cert_pem);
    shown[0].chain = str_of(text);
    shown[0].chain.n -= 60;
    refuses("[0 chain: is damaged behind its first certificate]");
    shown[0].chain = str_of(text);
    faults[0] = '\0';
    make_contexts();
}

static void tells_what_is_wrong_with_options(void **state)
{
    (void)state;
    front_spec.ciphers = "ECDHE-RSA-AES128-GCM-SHA256:ROT13";
    front_spec.ciphersuites = "TLS_AES_128_GCM_SHA256:TLS_ROT13";
    front_spec.ticket_keys = STR("short");
    refuses("[-1 ciphers: names \"ROT13\", which OpenSSL does not know]"
            "[-1 ciphersuites: names \"TLS_ROT13\", which OpenSSL does not know]"
            "[-1 ticket_keys: has another size than 80, 160, ... up to 1280 bytes: 1 to 16 "
            "keys of 80 random bytes, the first seals]");
    front_spec = (struct tls_front_spec){.name = "public",
                                         .certificates = shown,
                                         .count = 1,
                                         .client_auth = TLS_CLIENT_REQUEST,
                                         .client_ca = STR("none")};
    refuses("[-1 client_ca: holds no certificate, expected PEM (-----BEGIN CERTIFICATE-----)]");
    back_spec = (struct tls_back_spec){.ca = STR("none"),
                                       .verify = true,
                                       .chain = str_of(rsa.cert_pem),
                                       .key = str_of(ecdsa.key_pem)};
    faults[0] = '\0';
    assert_null(tls_back_new(&back_spec, on_back_fault, NULL));
    assert_string_equal(faults,
                        "[ca: holds no certificate, expected PEM (-----BEGIN CERTIFICATE-----)]"
                        "[key: does not fit the certificate: it belongs to another one]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(shows_the_certificate_of_the_name),
        T(a_title_is_a_name_too),
        T(two_kinds_stand_side_by_side),
        T(a_session_goes_on),
        T(a_session_goes_on_with_a_new_context_of_the_same_listener),
        T(a_session_is_not_another_listeners),
        T(keys_rotate_and_old_ones_open_for_a_while),
        T(tells_what_is_wrong_with_a_certificate),
        T(tells_what_is_wrong_with_a_chain),
        T(tells_what_is_wrong_with_options),
    };
    return cmocka_run_group_tests(tests, make_all, unmake_all);
}
