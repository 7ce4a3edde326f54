#include "net/tls_back.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdatomic.h>

#include "net/tls_cert.h"
#include "net/tls_parts.h"

struct tls_back {
    _Atomic uint32_t refs, generation;
    pthread_mutex_t lock; /* of ctx, for a moment and only where a connection begins */
    SSL_CTX *ctx;
    bool verify;
};

/* The server gave us a session to go on with: the oldest makes room for it. */
static int on_session(SSL *ssl, SSL_SESSION *session)
{
    struct tls_peer *peer = tls_of(ssl)->peer;
    if (tls_is_outdated(tls_of(ssl)))
        return 0;
    if (peer->count == TLS_SESSIONS) {
        SSL_SESSION_free(peer->sessions[0]);
        memmove(peer->sessions, peer->sessions + 1, --peer->count * sizeof(*peer->sessions));
    }
    peer->sessions[peer->count++] = session;
    return 1; /* the reference is ours now */
}

/* The newest: it lasts longest. One of TLS 1.3 is for one use (RFC 8446 C.4), so it is not
 * there for the next connection; its use brings another. */
static void go_on(struct tls *tls)
{
    struct tls_peer *peer = tls->peer;
    while (peer->count) {
        SSL_SESSION *session = peer->sessions[peer->count - 1];
        bool good =
            SSL_SESSION_is_resumable(session) && SSL_set_session(tls->ssl, session) == 1;
        if (good && SSL_SESSION_get_protocol_version(session) != TLS1_3_VERSION)
            return;
        peer->count--;
        SSL_SESSION_free(session);
        if (good)
            return;
    }
}

void tls_peer_done(struct tls_peer *peer)
{
    while (peer->count)
        SSL_SESSION_free(peer->sessions[--peer->count]);
}

uint32_t tls_back_generation(const struct tls_back *back)
{
    return atomic_load_explicit(&back->generation, memory_order_relaxed);
}

SSL_CTX *tls_back_take(struct tls_back *back, uint32_t *ret_generation)
{
    pthread_mutex_lock(&back->lock);
    SSL_CTX *ctx = back->ctx;
    *ret_generation = tls_back_generation(back);
    SSL_CTX_up_ref(ctx);
    pthread_mutex_unlock(&back->lock);
    return ctx;
}

void tls_back_renew(struct tls_back *back, struct tls_back *from)
{
    uint32_t its;
    SSL_CTX *ctx = tls_back_take(from, &its);
    pthread_mutex_lock(&back->lock);
    SSL_CTX *before = back->ctx;
    back->ctx = ctx;
    atomic_fetch_add_explicit(&back->generation, 1, memory_order_relaxed);
    pthread_mutex_unlock(&back->lock);
    SSL_CTX_free(before);
    tls_back_unref(from);
}

static bool is_ip(const char *name)
{
    unsigned char addr[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, name, addr) == 1 || inet_pton(AF_INET6, name, addr) == 1;
}

bool tls_back_begin(struct tls *tls)
{
    struct tls_peer *peer = tls->peer;
    const char *name = peer->name;
    if (tls->generation != peer->generation)
        tls_peer_done(peer);
    peer->generation = tls->generation;
    X509_VERIFY_PARAM *param = SSL_get0_param(tls->ssl);
    bool ok = true;
    SSL_set_hostflags(tls->ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (name && is_ip(name)) { /* which SNI has no place for (RFC 6066 3) */
        ok = !peer->back->verify || X509_VERIFY_PARAM_set1_ip_asc(param, name) == 1;
    } else if (name) {
        ok = SSL_set_tlsext_host_name(tls->ssl, name) == 1 &&
             (!peer->back->verify || SSL_set1_host(tls->ssl, name) == 1);
    }
    if (ok)
        go_on(tls);
    ERR_clear_error();
    return ok;
}

/* ---- making one ---- */

struct making {
    void (*on_fault)(void *arg, const struct tls_back_fault *fault);
    void *arg;
    bool failed;
};

static void fault(struct making *making, const char *option, const char *text)
{
    making->failed = true;
    making->on_fault(making->arg, &(struct tls_back_fault){option, text});
}

static void trust(struct making *making, SSL_CTX *ctx, const struct tls_back_spec *spec)
{
    SSL_CTX_set_verify(ctx, spec->verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
    if (!spec->ca.p) {
        if (spec->verify && SSL_CTX_set_default_verify_paths(ctx) != 1)
            fault(making, "ca", "is not given, and the system's authorities cannot be read");
        return;
    }
    const char *wrong = tls_cert_authorities(spec->ca, SSL_CTX_get_cert_store(ctx), NULL);
    if (wrong)
        fault(making, "ca", wrong);
}

static void identify(struct making *making, SSL_CTX *ctx, const struct tls_back_spec *spec)
{
    struct tls_cert cert = {0};
    const char *wrong = tls_cert_chain(&cert, spec->chain);
    if (wrong)
        fault(making, "certificate", wrong);
    wrong = tls_cert_key(&cert, spec->key);
    if (wrong)
        fault(making, "key", wrong);
    if (!making->failed && !tls_cert_use(&cert, ctx))
        fault(making, "certificate", tls_complaint());
    tls_cert_done(&cert);
}

static void fill(struct making *making, SSL_CTX *ctx, const struct tls_back_spec *spec)
{
    static const unsigned char h2[] = "\2h2";
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(ctx, on_session);
    if (spec->http2 && SSL_CTX_set_alpn_protos(ctx, h2, sizeof(h2) - 1) != 0)
        fault(making, NULL, "out of memory");
    trust(making, ctx, spec);
    if (spec->chain.p)
        identify(making, ctx, spec);
}

struct tls_back *tls_back_new(const struct tls_back_spec *spec,
                              void (*on_fault)(void *arg, const struct tls_back_fault *fault),
                              void *arg)
{
    struct making making = {on_fault, arg, false};
    struct tls_back *back = mem_zalloc(sizeof(*back));
    SSL_CTX *ctx = back ? SSL_CTX_new(TLS_client_method()) : NULL;
    if (!ctx || !tls_context_setup(ctx))
        fault(&making, NULL, "out of memory");
    else
        fill(&making, ctx, spec);
    ERR_clear_error();
    if (making.failed) {
        SSL_CTX_free(ctx);
        mem_free(back);
        return NULL;
    }
    atomic_init(&back->refs, 1);
    pthread_mutex_init(&back->lock, NULL);
    back->ctx = ctx;
    back->verify = spec->verify;
    return back;
}

struct tls_back *tls_back_ref(struct tls_back *back)
{
    atomic_fetch_add_explicit(&back->refs, 1, memory_order_relaxed);
    return back;
}

void tls_back_unref(struct tls_back *back)
{
    if (!back || atomic_fetch_sub_explicit(&back->refs, 1, memory_order_acq_rel) != 1)
        return;
    SSL_CTX_free(back->ctx);
    pthread_mutex_destroy(&back->lock);
    mem_free(back);
}
