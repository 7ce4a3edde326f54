/* For tests of TLS: certificates made on the spot, and two streams that are joined by it. */
#ifndef TLS_TEST_H
#define TLS_TEST_H

#include "net_test.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>

#include "net/shake.h"
#include "net/tls.h"
#include "net/tls_back.h"
#include "net/tls_front.h"

#define PLENTY (4u * 1024 * 1024)

/* A certificate with its key. */
struct made {
    X509 *cert;
    EVP_PKEY *key;
    char *cert_pem, *key_pem;
};

static inline char *text_of(BIO *bio)
{
    char *p;
    long n = BIO_get_mem_data(bio, &p);
    char *text = strndup(p, (size_t)n);
    BIO_free(bio);
    return text;
}

static inline void extend(X509 *cert, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, cert, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(cert, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

/* `names`: as "DNS:a.example,DNS:*.a.example", NULL: none. `by` NULL: signed by itself, and an
 * authority. `days`: until it ends. */
static inline struct made make_cert(const char *subject, const char *names, bool rsa, long days,
                                    const struct made *by)
{
    static long serial;
    struct made made = {.cert = X509_new(),
                        .key = rsa ? EVP_RSA_gen(2048) : EVP_EC_gen("P-256")};
    assert_non_null(made.cert);
    assert_non_null(made.key);
    X509_set_version(made.cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made.cert), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(made.cert), -2 * 86400);
    X509_gmtime_adj(X509_getm_notAfter(made.cert), days * 86400);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made.cert), "CN", MBSTRING_UTF8,
                               (const unsigned char *)subject, -1, -1, 0);
    X509_set_issuer_name(made.cert, X509_get_subject_name(by ? by->cert : made.cert));
    X509_set_pubkey(made.cert, made.key);
    if (!by)
        extend(made.cert, NID_basic_constraints, "critical,CA:TRUE");
    if (names)
        extend(made.cert, NID_subject_alt_name, names);
    assert_true(X509_sign(made.cert, by ? by->key : made.key, EVP_sha256()) > 0);
    BIO *bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(bio, made.cert);
    made.cert_pem = text_of(bio);
    bio = BIO_new(BIO_s_mem());
    PEM_write_bio_PrivateKey(bio, made.key, NULL, NULL, 0, NULL, NULL);
    made.key_pem = text_of(bio);
    return made;
}

static inline void made_done(struct made *made)
{
    X509_free(made->cert);
    EVP_PKEY_free(made->key);
    free(made->cert_pem);
    free(made->key_pem);
}

/* ---- who is who: made once ---- */

static struct made authority, ecdsa, rsa, other, client_cert, stranger;

static inline int make_all(void **state)
{
    (void)state;
    authority = make_cert("Test Authority", NULL, false, 30, NULL);
    ecdsa = make_cert("a.example", "DNS:a.example,DNS:*.a.example,IP:127.0.0.1", false, 30,
                      &authority);
    rsa = make_cert("a.example", "DNS:a.example", true, 30, &authority);
    other = make_cert("b.example", "DNS:b.example", false, 30, &authority);
    client_cert = make_cert("Ann, \"the\" client\x01", NULL, false, 30, &authority);
    stranger = make_cert("Somebody Else", NULL, false, 30, NULL);
    return 0;
}

static inline int unmake_all(void **state)
{
    (void)state;
    made_done(&authority);
    made_done(&ecdsa);
    made_done(&rsa);
    made_done(&other);
    made_done(&client_cert);
    made_done(&stranger);
    return 0;
}

/* ---- contexts ---- */

static char faults[1024];

static inline void on_front_fault(void *arg, const struct tls_fault *fault)
{
    (void)arg;
    size_t n = strlen(faults);
    snprintf(faults + n, sizeof(faults) - n, "[%d %s: %s]", fault->certificate,
             fault->option ? fault->option : "-", fault->text);
}

static inline void on_back_fault(void *arg, const struct tls_back_fault *fault)
{
    (void)arg;
    size_t n = strlen(faults);
    snprintf(faults + n, sizeof(faults) - n, "[%s: %s]", fault->option ? fault->option : "-",
             fault->text);
}

static struct tls_certificate shown[4];
static struct tls_front_spec front_spec;
static struct tls_back_spec back_spec;
static struct tls_front *front;
static struct tls_peer peer;

static inline void show(size_t i, const struct made *made, const char *name)
{
    shown[i] = (struct tls_certificate){
        .name = name, .chain = str_of(made->cert_pem), .key = str_of(made->key_pem)};
    front_spec.count = i + 1;
}

/* ---- two streams, one at each end ---- */

struct end {
    struct stream stream;
    bool open;
    char *got;
    size_t n;
    unsigned eofs, errors, connects;
    int err;
    const char *why;
};

static struct end client, server;
static struct shakes shakes;
static struct shake shake;
static struct tls_facts *known;
static int shaken; /* what it told; 1: nothing yet */

static struct end *end_of(struct stream *stream)
{
    return (struct end *)((char *)stream - offsetof(struct end, stream));
}

static inline void on_connected(struct stream *stream)
{
    end_of(stream)->connects++;
}

static inline void on_read(struct stream *stream)
{
    struct end *end = end_of(stream);
    struct str in = stream_unread(stream);
    assert_int_equal(end->eofs, 0);
    assert_true(end->n + in.n <= PLENTY);
    memcpy(end->got + end->n, in.p, in.n);
    end->n += in.n;
    stream_skip(stream, in.n);
}

static inline void on_eof(struct stream *stream)
{
    end_of(stream)->eofs++;
}

static inline void on_nothing(struct stream *stream)
{
    (void)stream;
}

static inline void on_error(struct stream *stream, int err)
{
    struct end *end = end_of(stream);
    end->errors++;
    end->err = err;
    end->why = stream_why(stream);
}

static const struct stream_ops ops = {
    .on_connected = on_connected,
    .on_read = on_read,
    .on_eof = on_eof,
    .on_drained = on_nothing,
    .on_pending = on_nothing,
    .on_error = on_error,
};

static inline void begin(struct end *end)
{
    char *got = end->got ? end->got : malloc(PLENTY);
    *end = (struct end){.got = got, .stream.fd = -1};
}

static inline int set_up(void **state)
{
    if (set_up_loop(state))
        return -1;
    shakes_init(&shakes, &loop);
    begin(&client);
    begin(&server);
    faults[0] = '\0';
    front_spec = (struct tls_front_spec){.name = "public", .certificates = shown};
    back_spec = (struct tls_back_spec){.ca = str_of(authority.cert_pem), .verify = true};
    peer = (struct tls_peer){.name = "a.example"};
    front = NULL;
    show(0, &ecdsa, NULL);
    shaken = 1;
    return 0;
}

static inline int tear_down(void **state)
{
    stream_close(&client.stream);
    stream_close(&server.stream);
    shakes_done(&shakes);
    tls_peer_done(&peer);
    tls_facts_free(known);
    known = NULL;
    tls_front_unref(front);
    tls_back_unref(peer.back);
    return tear_down_loop(state);
}

static inline void make_contexts(void)
{
    if (!front)
        front = tls_front_new(&front_spec, on_front_fault, NULL);
    if (!peer.back)
        peer.back = tls_back_new(&back_spec, on_back_fault, NULL);
    assert_string_equal(faults, "");
    assert_non_null(front);
    assert_non_null(peer.back);
}

static inline void on_shaken(struct shake *done, int err)
{
    shaken = err;
    if (err == 0) {
        assert_int_equal(stream_open(&server.stream, &loop, done->fd, false, done->tls, &ops),
                         0);
        server.open = true;
        shake_leave(done);
        return;
    }
    server.why = tls_why(done->tls);
    tls_free(done->tls);
    shake_leave(done);
    close(done->fd);
}

static inline void start(void)
{
    int fds[2];
    make_pair(fds);
    make_contexts();
    struct tls *tls = tls_connect(&peer, &loop, fds[0]);
    assert_non_null(tls);
    assert_int_equal(stream_open(&client.stream, &loop, fds[0], true, tls, &ops), 0);
    tls = tls_accept(front, &loop, fds[1]);
    assert_non_null(tls);
    assert_int_equal(shake_open(&shake, &shakes, tls, fds[1], 0, on_shaken), 0);
}

static inline void join(void)
{
    start();
    UNTIL(client.connects && shaken != 1);
    assert_int_equal(shaken, 0);
    settle();
}

/* Until the next call. */
static inline const struct tls_facts *facts(void)
{
    tls_facts_free(known);
    known = tls_facts_new(server.stream.tls);
    assert_non_null(known);
    return known;
}

static inline void part(void)
{
    stream_close(&client.stream);
    stream_close(&server.stream);
    begin(&client);
    begin(&server);
    shaken = 1;
}

static inline void assert_str(struct str got, const char *expected)
{
    assert_int_equal(got.n, strlen(expected));
    assert_memory_equal(got.p, expected, got.n);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

#endif
