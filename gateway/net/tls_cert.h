/* A certificate with its key, read and checked: what net/tls_front shows to clients, and
 * net/tls_back to servers. Inside the room only. */
#ifndef POSTERN_NET_TLS_CERT_H
#define POSTERN_NET_TLS_CERT_H

#include <openssl/ssl.h>
#include <time.h>

#include "base/str.h"

struct tls_cert {
    X509 *leaf;
    STACK_OF(X509) * chain; /* who signed it, in order */
    EVP_PKEY *key;
    char **names; /* host names it is for, lower case */
    size_t name_count;
    unsigned char *ocsp; /* NULL: none */
    int ocsp_len;
    time_t ocsp_until; /* when it must no longer be shown */
    time_t from, until;
};

/* Each returns NULL, or what is wrong in words that follow the name of the file. */
const char *tls_cert_chain(struct tls_cert *cert, struct str pem);
const char *tls_cert_key(struct tls_cert *cert, struct str pem); /* behind the chain */
const char *tls_cert_ocsp(struct tls_cert *cert, struct str der);
void tls_cert_done(struct tls_cert *cert);
/* Shows it by `ctx`. False: OpenSSL does not want it. */
bool tls_cert_use(const struct tls_cert *cert, SSL_CTX *ctx);
/* "RSA", "ECDSA"...: certificates of different kinds stand side by side. */
const char *tls_cert_kind(const struct tls_cert *cert);

/* All certificates of a PEM file go into `store`, and their subjects into `names` (NULL: not
 * wanted). NULL, or what is wrong. */
const char *tls_cert_authorities(struct str pem, X509_STORE *store,
                                 STACK_OF(X509_NAME) * names);

#endif
