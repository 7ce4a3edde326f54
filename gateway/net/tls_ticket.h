/* The keys that sessions are sealed with before they go to the client, who brings them back
 * (RFC 5077): the first seals, all of them open. Own keys live in memory only and rotate, so
 * that who learns one reads little of what was said; keys of a file are what it has.
 *
 * Counted by reference; sealing and opening from any thread, the rest on the main thread. */
#ifndef POSTERN_NET_TLS_TICKET_H
#define POSTERN_NET_TLS_TICKET_H

#include <openssl/ssl.h>

#include "base/str.h"

struct tls_tickets;

#define TLS_SESSION_S (2 * 60 * 60) /* how long a session may be gone on with */

/* Own keys. NULL: no memory or no randomness. */
struct tls_tickets *tls_tickets_new(void);
/* The keys of a file, TLS_TICKET_KEY bytes each. */
struct tls_tickets *tls_tickets_from(struct str keys);
struct tls_tickets *tls_tickets_ref(struct tls_tickets *tickets);
void tls_tickets_unref(struct tls_tickets *tickets); /* NULL is fine */
bool tls_tickets_are_own(const struct tls_tickets *tickets);
/* A new key when the first one is old. */
void tls_tickets_tick(struct tls_tickets *tickets, uint64_t now_ns);

/* For OpenSSL's callback of the same form: 1, 2 (open it, and seal a new one), 0 or -1. */
int tls_tickets_use(struct tls_tickets *tickets, unsigned char name[16], unsigned char *iv,
                    EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac, int seal);

#endif
