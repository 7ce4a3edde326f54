#include "net/tls_ticket.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/tls_front.h"

#define ROTATE_NS (60 * 60 * NS_PER_S)
#define OWN_KEYS  3 /* a session sealed just before a rotation opens for its whole life */

struct key {
    unsigned char name[16], aes[32], hmac[32];
};
_Static_assert(sizeof(struct key) == TLS_TICKET_KEY, "a key is what stands in the file");

struct tls_tickets {
    _Atomic uint32_t refs;
    pthread_rwlock_t lock; /* taken for a handshake, never for a request */
    bool own;
    uint64_t rotated_at;
    unsigned count;
    struct key keys[TLS_TICKET_KEYS];
};

static struct tls_tickets *make(void)
{
    struct tls_tickets *tickets = mem_zalloc(sizeof(*tickets));
    if (!tickets)
        return NULL;
    atomic_init(&tickets->refs, 1);
    pthread_rwlock_init(&tickets->lock, NULL);
    return tickets;
}

static bool make_key(struct key *key)
{
    unsigned char bytes[sizeof(*key)];
    if (RAND_priv_bytes(bytes, sizeof(bytes)) != 1)
        return false;
    memcpy(key, bytes, sizeof(bytes));
    OPENSSL_cleanse(bytes, sizeof(bytes));
    return true;
}

struct tls_tickets *tls_tickets_new(void)
{
    struct tls_tickets *tickets = make();
    if (!tickets)
        return NULL;
    tickets->own = true;
    tickets->count = 1;
    if (make_key(&tickets->keys[0]))
        return tickets;
    ERR_clear_error();
    tls_tickets_unref(tickets);
    return NULL;
}

struct tls_tickets *tls_tickets_from(struct str keys)
{
    struct tls_tickets *tickets = make();
    if (!tickets)
        return NULL;
    tickets->count = (unsigned)(keys.n / sizeof(struct key));
    memcpy(tickets->keys, keys.p, tickets->count * sizeof(struct key));
    return tickets;
}

struct tls_tickets *tls_tickets_ref(struct tls_tickets *tickets)
{
    atomic_fetch_add_explicit(&tickets->refs, 1, memory_order_relaxed);
    return tickets;
}

void tls_tickets_unref(struct tls_tickets *tickets)
{
    if (!tickets || atomic_fetch_sub_explicit(&tickets->refs, 1, memory_order_acq_rel) != 1)
        return;
    OPENSSL_cleanse(tickets->keys, sizeof(tickets->keys));
    pthread_rwlock_destroy(&tickets->lock);
    mem_free(tickets);
}

bool tls_tickets_are_own(const struct tls_tickets *tickets)
{
    return tickets->own;
}

void tls_tickets_tick(struct tls_tickets *tickets, uint64_t now_ns)
{
    struct key key;
    if (!tickets->own)
        return;
    if (!tickets->rotated_at)
        tickets->rotated_at = now_ns;
    if (now_ns - tickets->rotated_at < ROTATE_NS || !make_key(&key))
        return;
    pthread_rwlock_wrlock(&tickets->lock);
    memmove(&tickets->keys[1], &tickets->keys[0], (OWN_KEYS - 1) * sizeof(key));
    tickets->keys[0] = key;
    if (tickets->count < OWN_KEYS)
        tickets->count++;
    pthread_rwlock_unlock(&tickets->lock);
    tickets->rotated_at = now_ns;
    OPENSSL_cleanse(&key, sizeof(key));
}

static bool set_key(EVP_MAC_CTX *mac, struct key *key)
{
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, key->hmac, sizeof(key->hmac)),
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_end(),
    };
    return EVP_MAC_CTX_set_params(mac, params) == 1;
}

static int find(const struct tls_tickets *tickets, const unsigned char name[16])
{
    for (unsigned i = 0; i < tickets->count; i++)
        if (memcmp(tickets->keys[i].name, name, sizeof(tickets->keys[i].name)) == 0)
            return (int)i;
    return -1;
}

int tls_tickets_use(struct tls_tickets *tickets, unsigned char name[16], unsigned char *iv,
                    EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac, int seal)
{
    struct key key;
    pthread_rwlock_rdlock(&tickets->lock);
    int i = seal ? 0 : find(tickets, name);
    if (i >= 0)
        key = tickets->keys[i];
    pthread_rwlock_unlock(&tickets->lock);
    if (i < 0)
        return 0; /* a key we have thrown away, or never had: a whole handshake */
    bool ok = set_key(mac, &key);
    if (seal) {
        memcpy(name, key.name, sizeof(key.name));
        ok = ok && RAND_bytes(iv, EVP_MAX_IV_LENGTH) == 1 &&
             EVP_EncryptInit_ex2(cipher, EVP_aes_256_cbc(), key.aes, iv, NULL) == 1;
    } else {
        ok = ok && EVP_DecryptInit_ex2(cipher, EVP_aes_256_cbc(), key.aes, iv, NULL) == 1;
    }
    OPENSSL_cleanse(&key, sizeof(key));
    return !ok ? -1 : i == 0 ? 1 : 2;
}
