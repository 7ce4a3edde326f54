/* What the files of TLS share; nobody else includes it, so nobody else sees OpenSSL. */
#ifndef POSTERN_NET_TLS_PARTS_H
#define POSTERN_NET_TLS_PARTS_H

#include <openssl/ssl.h>

#include "net/tls.h"

#define TLS_READ_AHEAD (64 * 1024)
#define TLS_EARLY_DATA BLOCK_SMALL /* the most of one client: it is kept in one block */

struct tls {
    SSL *ssl;
    struct loop *loop;
    int fd;
    struct tls_front *front; /* one of the two */
    struct tls_peer *peer;
    uint32_t generation; /* of the peer's context */
    struct block *out;   /* sealed, from out_r to out_w; NULL: nothing is */
    uint32_t out_r, out_w;
    uint8_t reads_left; /* of the socket, in this wake-up */
    bool blocked;       /* the last call of OpenSSL ended because the socket had no more */
    bool more;          /* the last read gave bytes, and OpenSSL holds more */
    bool ended;         /* reading is over: `end` says how */
    bool shaken, sealed_end;
    bool early;         /* we read and write, and the handshake is not done yet */
    bool early_over;    /* no more early data comes */
    struct block *kept; /* early data from kept_r to kept_w; NULL: none */
    uint32_t kept_r, kept_w;
    int io_err; /* of the socket; 0: none */
    int end;    /* what tls_read returns from now on */
    const char *why;
};

/* tls.c */
struct tls *tls_of(const SSL *ssl);
/* What both kinds of context have in common. False: no memory. */
bool tls_context_setup(SSL_CTX *ctx);
/* What OpenSSL complained of last on this thread, in words that live for ever; the queue is
 * empty afterwards. */
const char *tls_complaint(void);

/* tls_front.c */
SSL_CTX *tls_front_context(struct tls_front *front);
bool tls_front_takes_early(const struct tls_front *front);

/* tls_back.c */
/* The context of now, with a reference of the caller's, and its generation. */
SSL_CTX *tls_back_take(struct tls_back *back, uint32_t *ret_generation);
uint32_t tls_back_generation(const struct tls_back *back);
bool tls_back_begin(struct tls *tls);

#endif
