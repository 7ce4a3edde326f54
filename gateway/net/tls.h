/* One TLS connection over a socket, and the contexts they are made from. No more than OpenSSL
 * under a stream's interface: bytes out of the socket, opened, and bytes sealed into it.
 *
 *   read:   socket ─▶ OpenSSL's read-ahead buffer ─▶ the caller's block
 *   write:  the caller's bytes ─▶ records in one block of ours ─▶ socket, in one call
 *
 * A struct tls belongs to one loop and whoever holds its socket (net/shake first, then a
 * net/stream), and never closes the socket. Contexts are immutable, counted by reference and
 * shared by all threads; each connection holds one. */
#ifndef POSTERN_NET_TLS_H
#define POSTERN_NET_TLS_H

#include "net/loop.h"

struct tls;
struct tls_front; /* what a listener's connections share (net/tls_front.h) */
struct tls_back;  /* what an upstream's connections share (net/tls_back.h) */

#define TLS_SESSIONS 4

/* One server as its connections see it: whom they ask for, and the sessions that the next ones
 * go on with. Embedded in its owner, who outlives the connections; one thread. */
struct tls_peer {
    struct tls_back *back;
    const char *name; /* whose certificate is expected; NULL: nobody's */
    struct ssl_session_st *sessions[TLS_SESSIONS]; /* the newest last */
    unsigned count;
    uint32_t generation; /* of `back`, that the sessions are of */
};
void tls_peer_done(struct tls_peer *peer); /* forgets the sessions */

/* A connection that has not begun. Each holds a reference to its context. NULL: no memory. */
struct tls *tls_accept(struct tls_front *front, struct loop *loop, int fd);
struct tls *tls_connect(struct tls_peer *peer, struct loop *loop, int fd);
/* At once, without a word to the peer. NULL is fine. */
void tls_free(struct tls *tls);
/* As free; tells the peer first that nothing was cut off, as far as the socket takes it. */
void tls_close(struct tls *tls);

/* A step of the handshake. 0: done, or it may be read and written meanwhile (tls_is_early);
 * -EAGAIN: waits for the peer; -EINPROGRESS: waits for the socket to take more; another -errno:
 * it failed, and tls_why says why. */
int tls_handshake(struct tls *tls);
/* In words, for a log or a detail: why it failed. Lives for ever. NULL: nothing to say. */
const char *tls_why(const struct tls *tls);

/* The socket is readable (or may be): read it again, a bounded number of times. */
void tls_wake(struct tls *tls);
/* Opened bytes; 0: the peer said that no more comes; -EAGAIN; -ECONNRESET: the socket ended
 * without that word, so something may be missing; another -errno. */
ssize_t tls_read(struct tls *tls, char *p, size_t n);
/* tls_read has something to say that no event of the socket would tell. */
bool tls_holds(const struct tls *tls);

/* Seals some of the `n` bytes, of `total` that wait altogether. Returns how many; 0: no room
 * before tls_flush; or -errno. */
ssize_t tls_seal(struct tls *tls, const char *p, size_t n, size_t total);
/* "No more comes", sealed like anything else. */
void tls_seal_end(struct tls *tls);
size_t tls_waiting(const struct tls *tls); /* sealed bytes the socket has not taken */
/* Returns how many of them it took, or -errno. */
ssize_t tls_flush(struct tls *tls);

/* Once the handshake is done. */
struct str tls_protocol(const struct tls *tls); /* ALPN's choice; .p NULL: none */
bool tls_is_resumed(const struct tls *tls);
/* The files of its upstream have changed since it began: it says who we were then, and trusts
 * whom we trusted. */
bool tls_is_outdated(const struct tls *tls);
/* The handshake is not done: what was read so far is a client's early data, which somebody else
 * may have recorded and sent again (RFC 8446 8). */
bool tls_is_early(const struct tls *tls);

/* What the two sides of a client's connection have agreed on and shown. Its own memory, so that
 * it can be spoken of when the connection is gone. .p NULL: there is none. */
struct tls_facts {
    struct str version, cipher; /* "TLSv1.3", "TLS_AES_128_GCM_SHA256" */
    struct str protocol;        /* ALPN's choice */
    struct str sni;             /* the name the client asked for, lower case */
    struct str subject;         /* of the client's verified certificate (RFC 2253) */
    struct x509_st *shown;      /* our certificate */
};
struct tls_facts *tls_facts_new(const struct tls *tls); /* NULL: no memory */
void tls_facts_free(struct tls_facts *facts);           /* NULL is fine */
/* Whether the certificate that was shown is one for that host (lower case, no port). */
bool tls_covers(const struct tls_facts *facts, struct str host);

#endif
