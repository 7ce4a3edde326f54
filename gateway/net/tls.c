#include "net/tls_parts.h"

#include <assert.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include "net/io.h"
#include "net/tls_back.h"
#include "net/tls_front.h"

#define RECORD      (16u * 1024) /* the most plain bytes in one */
#define OVERHEAD    128u         /* what sealing adds to a record, at most */
#define RESERVE     384u         /* kept free for what OpenSSL has to say in between */
#define SEAL_MIN    1024u        /* less room than this is not worth a record of its own */
#define READS_MAX   4            /* of the socket in one wake-up */
#define EARLY_OUT   4096u        /* sealed and not sent before the handshake is done, at most */
#define SILENT_MAX  32           /* records without a byte for us, one after another */
#define SUBJECT_MAX 4096         /* a longer subject is none */

/* ---- OpenSSL's way to the socket ---- */

static int bio_read(BIO *bio, char *p, int n)
{
    struct tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (tls->io_err)
        return -1;
    if (!tls->reads_left || n <= 0) {
        tls->blocked = true;
        BIO_set_retry_read(bio);
        return -1;
    }
    ssize_t got = io_recv(tls->fd, p, (size_t)n);
    if (got < 0 && errno == EAGAIN) {
        tls->reads_left = 0;
        tls->blocked = true;
        BIO_set_retry_read(bio);
        return -1;
    }
    if (got <= 0) {
        tls->io_err = got < 0 ? errno : ECONNRESET;
        return got < 0 ? -1 : 0;
    }
    /* What does not fill the room has drained the socket. */
    tls->reads_left = got < n ? 0 : (uint8_t)(tls->reads_left - 1);
    return (int)got;
}

/* True: there is room in the block, or at least it was asked for. */
static bool out_room(struct tls *tls, uint32_t size)
{
    if (tls->out && tls->out_w < tls->out->cap)
        return true;
    if (tls->out)
        return tls_flush(tls) >= 0 && (!tls->out || tls->out_w < tls->out->cap);
    tls->out = block_take(&tls->loop->blocks, size);
    tls->out_r = tls->out_w = 0;
    if (!tls->out)
        tls->io_err = ENOMEM;
    return tls->out != NULL;
}

static int bio_write(BIO *bio, const char *p, int n)
{
    struct tls *tls = BIO_get_data(bio);
    int done = 0;
    BIO_clear_retry_flags(bio);
    while (done < n) {
        if (!out_room(tls, BLOCK_SMALL)) {
            if (done)
                return done;
            if (!tls->io_err)
                BIO_set_retry_write(bio);
            return -1;
        }
        if (!tls->out)
            continue; /* it was full and has gone out whole */
        size_t room = tls->out->cap - tls->out_w, part = (size_t)(n - done);
        if (part > room)
            part = room;
        memcpy(tls->out->data + tls->out_w, p + done, part);
        tls->out_w += (uint32_t)part;
        done += (int)part;
    }
    return done;
}

static long bio_ctrl(BIO *bio, int what, long number, void *p)
{
    (void)bio, (void)number, (void)p;
    return what == BIO_CTRL_FLUSH; /* we flush at the end of each step */
}

static BIO_METHOD *bio_method;
static int tls_index = -1;

static void init_once(void)
{
    bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "stream");
    tls_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, NULL);
    if (!bio_method)
        return;
    BIO_meth_set_read(bio_method, bio_read);
    BIO_meth_set_write(bio_method, bio_write);
    BIO_meth_set_ctrl(bio_method, bio_ctrl);
}

/* ---- contexts and connections ---- */

struct tls *tls_of(const SSL *ssl)
{
    return SSL_get_ex_data(ssl, tls_index);
}

bool tls_context_setup(SSL_CTX *ctx)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_once);
    SSL_CTX_set_options(ctx, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    /* A record without bytes for us ends a read: so they can be counted. */
    SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(ctx, 1);
    SSL_CTX_set_default_read_buffer_len(ctx, TLS_READ_AHEAD);
    return bio_method && tls_index >= 0;
}

static struct tls *new_tls(SSL_CTX *ctx, struct loop *loop, int fd)
{
    struct tls *tls = mem_zalloc(sizeof(*tls));
    BIO *bio = tls ? BIO_new(bio_method) : NULL;
    SSL *ssl = bio ? SSL_new(ctx) : NULL;
    if (!ssl || !SSL_set_ex_data(ssl, tls_index, tls)) {
        SSL_free(ssl);
        BIO_free(bio);
        mem_free(tls);
        ERR_clear_error();
        return NULL;
    }
    tls->ssl = ssl;
    tls->loop = loop;
    tls->fd = fd;
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    return tls;
}

struct tls *tls_accept(struct tls_front *front, struct loop *loop, int fd)
{
    struct tls *tls = new_tls(tls_front_context(front), loop, fd);
    if (!tls)
        return NULL;
    tls->front = tls_front_ref(front);
    SSL_set_accept_state(tls->ssl);
    return tls;
}

struct tls *tls_connect(struct tls_peer *peer, struct loop *loop, int fd)
{
    uint32_t generation;
    SSL_CTX *ctx = tls_back_take(peer->back, &generation);
    struct tls *tls = new_tls(ctx, loop, fd);
    SSL_CTX_free(ctx);
    if (!tls)
        return NULL;
    tls->peer = peer;
    tls->generation = generation;
    SSL_set_connect_state(tls->ssl);
    if (tls_back_begin(tls))
        return tls;
    tls_free(tls);
    return NULL;
}

void tls_free(struct tls *tls)
{
    if (!tls)
        return;
    /* A session whose connection ends in silence may still go on in another. */
    if (tls->shaken)
        SSL_set_shutdown(tls->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    SSL_free(tls->ssl);
    block_unref(tls->out);
    block_unref(tls->kept);
    tls_front_unref(tls->front);
    mem_free(tls);
}

void tls_close(struct tls *tls)
{
    if (tls->shaken && !tls->io_err && !tls->why) {
        tls_seal_end(tls);
        tls_flush(tls);
    }
    tls_free(tls);
}

/* ---- what goes wrong ---- */

const char *tls_complaint(void)
{
    unsigned long code = ERR_peek_last_error();
    const char *words = code ? ERR_reason_error_string(code) : NULL;
    if (ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER)
        words = "what came is not TLS";
    ERR_clear_error();
    return words ? words : "OpenSSL does not say why";
}

/* Behind a failed call: 0 to go on, or -errno. */
static int judge(struct tls *tls, int rc)
{
    int kind = SSL_get_error(tls->ssl, rc);
    if (kind == SSL_ERROR_WANT_READ)
        return tls->blocked ? -EAGAIN : 0;
    if (kind == SSL_ERROR_WANT_WRITE)
        return -EINPROGRESS;
    if (tls->io_err) {
        ERR_clear_error();
        return -tls->io_err;
    }
    long verdict = SSL_get_verify_result(tls->ssl);
    const char *words = tls_complaint();
    if (!tls->shaken && verdict != X509_V_OK)
        words = X509_verify_cert_error_string(verdict);
    tls->why = words;
    return -EPROTO;
}

const char *tls_why(const struct tls *tls)
{
    return tls->why;
}

/* ---- the handshake ---- */

/* What a step has to say goes out, also what tells the peer why it failed. */
static int flush_step(struct tls *tls, int err)
{
    ssize_t sent = tls_flush(tls);
    if (err == -EAGAIN && tls_waiting(tls))
        err = sent >= 0 || sent == -EAGAIN ? -EINPROGRESS : (int)sent;
    return err;
}

/* Before the handshake is done. 1: there is some; 0: no more comes; or -errno. */
static int read_early(struct tls *tls, char *p, size_t n, size_t *ret)
{
    for (;;) {
        tls->blocked = false;
        int rc = SSL_read_early_data(tls->ssl, p, n, ret);
        if (rc == SSL_READ_EARLY_DATA_FINISH) {
            tls->early_over = true;
            return 0;
        }
        if (rc == SSL_READ_EARLY_DATA_SUCCESS && *ret)
            return 1;
        int err = rc == SSL_READ_EARLY_DATA_SUCCESS ? 0 : judge(tls, 0);
        if (err < 0)
            return err;
    }
}

/* As read_early, into a block of its own. */
static int keep_early(struct tls *tls)
{
    size_t got;
    tls->kept = block_take(&tls->loop->blocks, TLS_EARLY_DATA);
    if (!tls->kept)
        return -ENOMEM;
    int rc = read_early(tls, tls->kept->data, tls->kept->cap, &got);
    if (rc == 1) {
        tls->kept_w = (uint32_t)got;
        tls->early = tls->shaken = tls->more = true;
        return 1;
    }
    block_unref(tls->kept);
    tls->kept = NULL;
    return rc;
}

static ssize_t take_kept(struct tls *tls, char *p, size_t n)
{
    size_t left = tls->kept_w - tls->kept_r;
    n = n < left ? n : left;
    memcpy(p, tls->kept->data + tls->kept_r, n);
    tls->kept_r += (uint32_t)n;
    if (n == left) {
        block_unref(tls->kept);
        tls->kept = NULL;
        /* It is looked at before anything else: what comes behind may end its being early. */
        tls->more = SSL_has_pending(tls->ssl);
    }
    return (ssize_t)n;
}

int tls_handshake(struct tls *tls)
{
    int rc, err;
    if (tls_waiting(tls)) { /* the peer waits for that: there is nothing to read before */
        ssize_t sent = tls_flush(tls);
        if (tls_waiting(tls))
            return sent >= 0 || sent == -EAGAIN ? -EINPROGRESS : (int)sent;
    }
    if (tls->front && tls_front_takes_early(tls->front) && !tls->early_over) {
        err = keep_early(tls);
        if (err == 1)
            return 0;
        if (err < 0)
            return flush_step(tls, err);
    }
    do {
        tls->blocked = false;
        rc = SSL_do_handshake(tls->ssl);
        err = rc == 1 ? 0 : judge(tls, rc);
    } while (rc != 1 && err == 0);
    if (rc == 1) {
        tls->shaken = true;
        tls->more = SSL_has_pending(tls->ssl);
        return 0; /* what is still to be sent goes out with whatever comes next */
    }
    return flush_step(tls, err);
}

/* ---- reading ---- */

void tls_wake(struct tls *tls)
{
    tls->reads_left = READS_MAX;
}

static ssize_t end_reading(struct tls *tls, int how)
{
    tls->ended = true;
    tls->end = how;
    tls->more = false;
    if (how < 0)
        tls_flush(tls); /* an alert */
    return how;
}

ssize_t tls_read(struct tls *tls, char *p, size_t n)
{
    if (tls->ended)
        return tls->end;
    if (tls->kept)
        return take_kept(tls, p, n);
    for (unsigned silent = 0; silent <= SILENT_MAX; silent++) {
        size_t got;
        int rc = 0;
        if (tls->early && !tls->early_over) {
            rc = read_early(tls, p, n, &got);
            if (rc < 0) {
                tls->more = false;
                return rc == -EAGAIN ? rc : end_reading(tls, rc);
            }
        }
        tls->blocked = false;
        if (rc == 0)
            rc = SSL_read_ex(tls->ssl, p, n, &got); /* does the rest of the handshake too */
        tls->early = tls->early && !SSL_is_init_finished(tls->ssl);
        if (rc == 1) {
            tls->more = tls->reads_left || SSL_has_pending(tls->ssl);
            return (ssize_t)got;
        }
        if (SSL_get_shutdown(tls->ssl) & SSL_RECEIVED_SHUTDOWN &&
            SSL_get_error(tls->ssl, rc) == SSL_ERROR_ZERO_RETURN)
            return end_reading(tls, 0);
        int err = judge(tls, rc);
        if (err == -EAGAIN) {
            tls->more = false;
            return err;
        }
        if (err == -EINPROGRESS)
            break;
        if (err < 0)
            return end_reading(tls, err);
    }
    /* It makes us answer or look at records that bring nothing, and takes no answer. */
    tls->why = "too many records without data";
    return end_reading(tls, -EPROTO);
}

bool tls_holds(const struct tls *tls)
{
    return tls->more || tls->ended;
}

/* ---- writing ---- */

ssize_t tls_seal(struct tls *tls, const char *p, size_t n, size_t total)
{
    if (tls->early && tls_waiting(tls) >= EARLY_OUT)
        return 0; /* the end of the handshake needs room */
    if (!tls->out &&
        !out_room(tls, total + OVERHEAD + RESERVE > BLOCK_SMALL ? BLOCK_LARGE : BLOCK_SMALL))
        return -ENOMEM;
    size_t room = tls->out->cap - tls->out_w, written;
    if (room < OVERHEAD + RESERVE + (n < SEAL_MIN ? n : SEAL_MIN))
        return 0;
    room -= OVERHEAD + RESERVE;
    if (n > room)
        n = room;
    if (n > RECORD)
        n = RECORD;
    int rc = tls->early ? SSL_write_early_data(tls->ssl, p, n, &written)
                        : SSL_write_ex(tls->ssl, p, n, &written);
    if (rc == 1)
        return (ssize_t)written;
    int err = judge(tls, rc);
    assert(err != -EAGAIN && err != -EINPROGRESS); /* there was room */
    return err < 0 ? err : -EPROTO;
}

void tls_seal_end(struct tls *tls)
{
    if (tls->sealed_end || !tls->shaken || tls->early)
        return; /* in the middle of a handshake there is no such word */
    tls->sealed_end = true;
    SSL_shutdown(tls->ssl); /* only sends: its answer would be read like any record */
    ERR_clear_error();
}

size_t tls_waiting(const struct tls *tls)
{
    return tls->out_w - tls->out_r;
}

ssize_t tls_flush(struct tls *tls)
{
    if (!tls->out)
        return 0;
    struct iovec iov = {tls->out->data + tls->out_r, tls->out_w - tls->out_r};
    ssize_t sent = iov.iov_len ? io_send(tls->fd, &iov, 1, false) : 0;
    if (sent < 0) {
        if (errno != EAGAIN)
            tls->io_err = errno;
        return -errno;
    }
    tls->out_r += (uint32_t)sent;
    if (tls->out_r == tls->out_w) {
        block_unref(tls->out);
        tls->out = NULL;
        tls->out_r = tls->out_w = 0;
    }
    return sent;
}

/* ---- what was agreed ---- */

struct str tls_protocol(const struct tls *tls)
{
    const unsigned char *p = NULL;
    unsigned n = 0;
    SSL_get0_alpn_selected(tls->ssl, &p, &n);
    return (struct str){(const char *)p, n};
}

bool tls_is_early(const struct tls *tls)
{
    return tls->early;
}

bool tls_is_outdated(const struct tls *tls)
{
    return tls->peer && tls->generation != tls_back_generation(tls->peer->back);
}

bool tls_is_resumed(const struct tls *tls)
{
    return SSL_session_reused(tls->ssl);
}

/* The subject of the client's certificate, if it has shown one that we trust. A long one is
 * none: it could be taken for another that begins like it. */
static struct str read_subject(const struct tls *tls, BIO *text)
{
    X509 *client = SSL_get0_peer_certificate(tls->ssl);
    char *p;
    if (!client || SSL_get_verify_result(tls->ssl) != X509_V_OK)
        return (struct str){NULL, 0};
    /* RFC 2253 escapes controls and what is not ASCII: it goes into a header. */
    if (X509_NAME_print_ex(text, X509_get_subject_name(client), 0, XN_FLAG_RFC2253) < 0)
        return (struct str){NULL, 0};
    long n = BIO_get_mem_data(text, &p);
    return n > 0 && n <= SUBJECT_MAX ? (struct str){p, (size_t)n} : (struct str){NULL, 0};
}

static struct str keep(char **at, struct str s)
{
    if (!s.p)
        return s;
    char *p = *at;
    memcpy(p, s.p, s.n);
    *at += s.n;
    return (struct str){p, s.n};
}

struct tls_facts *tls_facts_new(const struct tls *tls)
{
    BIO *text = BIO_new(BIO_s_mem());
    if (!text)
        return NULL;
    const char *name = SSL_get_servername(tls->ssl, TLSEXT_NAMETYPE_host_name);
    struct str sni = name ? str_of(name) : (struct str){NULL, 0},
               subject = read_subject(tls, text), protocol = tls_protocol(tls);
    struct tls_facts *facts = mem_alloc(sizeof(*facts) + sni.n + subject.n + protocol.n);
    if (facts) {
        char *at = (char *)(facts + 1);
        *facts = (struct tls_facts){
            .version = str_of(SSL_get_version(tls->ssl)),
            .cipher = str_of(SSL_get_cipher_name(tls->ssl)),
            .protocol = keep(&at, protocol),
            .subject = keep(&at, subject),
            .shown = SSL_get_certificate(tls->ssl),
        };
        facts->sni = keep(&at, sni);
        for (char *p = at - facts->sni.n; p < at; p++)
            *p = ascii_lower(*p);
        if (facts->shown)
            X509_up_ref(facts->shown);
    }
    BIO_free(text);
    ERR_clear_error();
    return facts;
}

void tls_facts_free(struct tls_facts *facts)
{
    if (!facts)
        return;
    X509_free(facts->shown);
    mem_free(facts);
}

bool tls_covers(const struct tls_facts *facts, struct str host)
{
    char ip[64];
    bool bracketed = host.n > 2 && host.p[0] == '[' && host.p[host.n - 1] == ']';
    struct str bare = bracketed ? (struct str){host.p + 1, host.n - 2} : host;
    if (!facts->shown || !host.n)
        return false;
    if (bare.n < sizeof(ip)) {
        memcpy(ip, bare.p, bare.n);
        ip[bare.n] = '\0';
        if (X509_check_ip_asc(facts->shown, ip, 0) == 1)
            return true;
    }
    return X509_check_host(facts->shown, host.p, host.n, 0, NULL) == 1;
}
