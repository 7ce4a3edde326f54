/* What the connections of one listener share: certificates and by which name each is shown,
 * versions and ciphers, who must show a certificate in return, and the keys of tickets.
 *
 * Made on the main thread, immutable afterwards but for the keys, which rotate. Counted by
 * reference, any thread. */
#ifndef POSTERN_NET_TLS_FRONT_H
#define POSTERN_NET_TLS_FRONT_H

#include <time.h>

#include "net/tls.h"

/* Suites with forward secrecy and authenticated encryption only: what a spec has by default. */
#define TLS_CIPHERS                                                                            \
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:"                               \
    "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:"                               \
    "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"
#define TLS_CIPHERSUITES                                                                       \
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"

#define TLS_TICKET_KEY  80 /* bytes of one key in a shared file: name, AES, HMAC */
#define TLS_TICKET_KEYS 16 /* the most in one file */

enum tls_client_auth { TLS_CLIENT_NONE, TLS_CLIENT_REQUEST, TLS_CLIENT_REQUIRE };

/* One certificate: the contents of its files. */
struct tls_certificate {
    const char *name; /* a host name it is shown for besides its own; NULL: none */
    struct str chain; /* PEM: the certificate first, then who signed it */
    struct str key;   /* PEM */
    struct str ocsp;  /* DER: an OCSP response to show with it; .p NULL: none */
};

struct tls_front_spec {
    const char *name; /* the listener's: sessions of another one are not taken */
    const struct tls_certificate *certificates;
    size_t count;
    bool tls13_only;
    const char *ciphers, *ciphersuites; /* of 1.2 and 1.3; NULL: ours */
    enum tls_client_auth client_auth;
    struct str client_ca;   /* PEM */
    struct str ticket_keys; /* TLS_TICKET_KEY bytes each, the first seals; .p NULL: our own */
    bool http2;             /* offer it */
    bool early_data;        /* take it (RFC 8446 2.3) */
    /* Whose own ticket keys go on; NULL: nobody's. */
    const struct tls_front *before;
};

/* What is wrong with a spec. */
struct tls_fault {
    int certificate; /* which; -1: the listener's options */
    const char *option;
    char text[256];
};

/* NULL when there is a fault, each of which `on_fault` has heard. */
struct tls_front *tls_front_new(const struct tls_front_spec *spec,
                                void (*on_fault)(void *arg, const struct tls_fault *fault),
                                void *arg);
struct tls_front *tls_front_ref(struct tls_front *front);
void tls_front_unref(struct tls_front *front); /* NULL is fine */

/* From when and until when its i-th certificate is valid, seconds since 1970. */
time_t tls_front_start(const struct tls_front *front, size_t i);
time_t tls_front_expiry(const struct tls_front *front, size_t i);
const char *tls_front_kind(const struct tls_front *front, size_t i); /* "RSA", "ECDSA"... */
/* Whether one of its certificates is valid for exactly that time. */
bool tls_front_has_dates(const struct tls_front *front, time_t from, time_t until);
/* Time has passed: own ticket keys may have to be rotated. Main thread. */
void tls_front_tick(struct tls_front *front, uint64_t now_ns);

#endif
