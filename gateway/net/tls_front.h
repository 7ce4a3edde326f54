/* What the connections of one listener share: certificates and by which name each is shown,
 * versions and ciphers, who must show a certificate in return, and the keys of tickets.
 *
 * Made on the main thread, immutable afterwards but for the keys, which rotate. Counted by
 * reference, any thread. */
#ifndef POSTERN_NET_TLS_FRONT_H
#define POSTERN_NET_TLS_FRONT_H

#include <time.h>

#include "net/tls.h"

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

/* When its i-th certificate ends, seconds since 1970. */
time_t tls_front_expiry(const struct tls_front *front, size_t i);
/* Time has passed: own ticket keys may have to be rotated. Main thread. */
void tls_front_tick(struct tls_front *front, uint64_t now_ns);

#endif
