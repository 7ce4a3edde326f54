#include "net/tls_front.h"

#include <assert.h>
#include <openssl/err.h>
#include <openssl/sha.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "net/tls_cert.h"
#include "net/tls_parts.h"
#include "net/tls_ticket.h"

#define KINDS 4 /* certificates side by side for one name */

#define GROUPS "X25519:P-256:P-384"

/* The certificates of one name, one of a kind: OpenSSL shows the one that the client takes. */
struct group {
    uint32_t certs[KINDS];
    uint32_t count;
    SSL_CTX *ctx;
};

struct name {
    const char *text; /* lower case; "*.example.com" for one label in front */
    uint32_t order, cert, group;
};

struct tls_front {
    _Atomic uint32_t refs;
    struct tls_cert *certs;
    size_t cert_count;
    char **titles;      /* host names that the file gives them */
    struct name *names; /* sorted */
    size_t name_count;
    struct group *groups; /* the first is the default */
    size_t group_count;
    struct tls_tickets *tickets;
    bool http2, early_data;
};

/* ---- handshakes: any thread ---- */

static const struct name *find(const struct tls_front *front, const char *text)
{
    size_t low = 0, high = front->name_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(text, front->names[middle].text);
        if (order == 0)
            return &front->names[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static const struct name *find_host(const struct tls_front *front, const char *host)
{
    char text[256] = "*";
    size_t n = 0;
    for (; n < sizeof(text) - 2 && host[n]; n++)
        text[n + 1] = ascii_lower(host[n]);
    text[n + 1] = '\0';
    if (n && text[n] == '.')
        text[n] = '\0'; /* the root's dot is not part of the name */
    const struct name *name = find(front, text + 1);
    char *dot = name ? NULL : strchr(text, '.');
    if (!dot)
        return name;
    dot[-1] = '*'; /* "*www.example.com": the star goes where the first label ended */
    return find(front, dot - 1);
}

static int on_servername(SSL *ssl, int *alert, void *arg)
{
    struct tls_front *front = arg;
    (void)alert;
    const char *host = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    const struct name *name = host ? find_host(front, host) : NULL;
    if (name && name->group)
        SSL_set_SSL_CTX(ssl, front->groups[name->group].ctx);
    return SSL_TLSEXT_ERR_OK; /* else the default, as for who asks for nobody */
}

static int on_alpn(SSL *ssl, const unsigned char **ret, unsigned char *ret_len,
                   const unsigned char *offered, unsigned n, void *arg)
{
    static const unsigned char both[] = "\2h2\10http/1.1";
    const struct tls_front *front = arg;
    unsigned skip = front->http2 ? 0 : 3;
    unsigned char *chosen;
    (void)ssl;
    /* RFC 7301 3.2: without a common one the handshake fails. */
    if (SSL_select_next_proto(&chosen, ret_len, both + skip, sizeof(both) - 1 - skip, offered,
                              n) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *ret = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static int on_status(SSL *ssl, void *arg)
{
    const struct tls_front *front = arg;
    const X509 *shown = SSL_get_certificate(ssl);
    for (size_t i = 0; i < front->cert_count; i++) {
        const struct tls_cert *cert = &front->certs[i];
        if (cert->leaf != shown || !cert->ocsp ||
            (cert->ocsp_until && cert->ocsp_until < time(NULL)))
            continue;
        unsigned char *copy = OPENSSL_memdup(cert->ocsp, (size_t)cert->ocsp_len);
        if (!copy)
            break;
        SSL_set_tlsext_status_ocsp_resp(ssl, copy, cert->ocsp_len);
        return SSL_TLSEXT_ERR_OK;
    }
    return SSL_TLSEXT_ERR_NOACK;
}

static int on_ticket(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher,
                     EVP_MAC_CTX *mac, int seal)
{
    int rc = tls_tickets_use(tls_of(ssl)->front->tickets, name, iv, cipher, mac, seal);
    /* A ticket of TLS 1.3 is for one use (RFC 8446 C.4): who comes with one gets another. */
    return rc == 1 && !seal && SSL_version(ssl) == TLS1_3_VERSION ? 2 : rc;
}

/* ---- making one: main thread ---- */

struct making {
    const struct tls_front_spec *spec;
    struct tls_front *front;
    void (*on_fault)(void *arg, const struct tls_fault *fault);
    void *arg;
    size_t faults;
    X509_STORE *authorities;
    STACK_OF(X509_NAME) * authority_names;
    unsigned char session_context[SHA256_DIGEST_LENGTH];
};

static void fault(struct making *making, int certificate, const char *option, const char *text)
{
    struct tls_fault told = {.certificate = certificate, .option = option};
    snprintf(told.text, sizeof(told.text), "%s", text);
    making->faults++;
    making->on_fault(making->arg, &told);
}

static void no_memory(struct making *making)
{
    ERR_clear_error();
    fault(making, -1, NULL, "out of memory");
}

static void read_certificates(struct making *making)
{
    struct tls_front *front = making->front;
    for (size_t i = 0; i < making->spec->count; i++) {
        const struct tls_certificate *given = &making->spec->certificates[i];
        struct tls_cert *cert = &front->certs[front->cert_count++];
        const char *wrong = tls_cert_chain(cert, given->chain);
        if (wrong)
            fault(making, (int)i, "chain", wrong);
        wrong = tls_cert_key(cert, given->key);
        if (wrong)
            fault(making, (int)i, "key", wrong);
        wrong = given->ocsp.p ? tls_cert_ocsp(cert, given->ocsp) : NULL;
        if (wrong)
            fault(making, (int)i, "ocsp", wrong);
        front->titles[i] = given->name ? strdup(given->name) : NULL;
        if (given->name && !front->titles[i])
            no_memory(making);
        for (char *p = front->titles[i]; p && *p; p++)
            *p = ascii_lower(*p);
    }
}

/* One name may have a certificate of each kind, not two of one. */
static void check_titles(struct making *making)
{
    const struct tls_front *front = making->front;
    for (size_t i = 1; i < front->cert_count; i++) {
        const char *title = front->titles[i], *kind = tls_cert_kind(&front->certs[i]);
        for (size_t k = 0; title && k < i; k++) {
            char text[128];
            if (!front->titles[k] || strcmp(front->titles[k], title) != 0 ||
                strcmp(tls_cert_kind(&front->certs[k]), kind) != 0)
                continue;
            snprintf(text, sizeof(text), "is the second %s certificate of that name", kind);
            fault(making, (int)i, NULL, text);
            break;
        }
    }
}

static int by_text(const void *a, const void *b)
{
    const struct name *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    return order ? order : x->order < y->order ? -1 : x->order > y->order;
}

/* The group of exactly these certificates. */
static bool group_of(struct tls_front *front, const struct group *wanted, uint32_t *ret)
{
    for (size_t i = 0; i < front->group_count; i++) {
        const struct group *group = &front->groups[i];
        if (group->count == wanted->count &&
            memcmp(group->certs, wanted->certs, wanted->count * sizeof(uint32_t)) == 0) {
            *ret = (uint32_t)i;
            return true;
        }
    }
    struct group *groups =
        mem_realloc(front->groups, (front->group_count + 1) * sizeof(*groups));
    if (!groups)
        return false;
    front->groups = groups;
    *ret = (uint32_t)front->group_count;
    groups[front->group_count++] = *wanted;
    return true;
}

static bool has_kind(const struct tls_front *front, const struct group *group, uint32_t cert)
{
    for (uint32_t i = 0; i < group->count; i++)
        if (strcmp(tls_cert_kind(&front->certs[group->certs[i]]),
                   tls_cert_kind(&front->certs[cert])) == 0)
            return true;
    return false;
}

/* All names in order; those of one text become one, with a certificate of each kind, of which
 * the first in the file. */
static bool make_names(struct tls_front *front)
{
    size_t room = 0, used = 0;
    for (size_t i = 0; i < front->cert_count; i++)
        room += 1 + front->certs[i].name_count;
    front->names = mem_alloc(room * sizeof(*front->names));
    if (!front->names)
        return false;
    for (size_t i = 0; i < front->cert_count; i++) {
        if (front->titles[i])
            front->names[used++] = (struct name){front->titles[i], (uint32_t)i, (uint32_t)i, 0};
        for (size_t k = 0; k < front->certs[i].name_count; k++)
            front->names[used++] =
                (struct name){front->certs[i].names[k], (uint32_t)i, (uint32_t)i, 0};
    }
    if (used)
        qsort(front->names, used, sizeof(*front->names), by_text);
    for (size_t i = 0, next; i < used; i = next) {
        struct group wanted = {.count = 0};
        for (next = i;
             next < used && strcmp(front->names[next].text, front->names[i].text) == 0; next++)
            if (wanted.count < KINDS && !has_kind(front, &wanted, front->names[next].cert))
                wanted.certs[wanted.count++] = front->names[next].cert;
        struct name *name = &front->names[front->name_count++];
        *name = front->names[i];
        if (!group_of(front, &wanted, &name->group))
            return false;
    }
    return true;
}

/* The first group is for who asks for nobody we know: that of the first certificate's name. */
static bool make_default(struct tls_front *front)
{
    struct group alone = {.certs = {0}, .count = 1};
    const char *text = front->titles[0]             ? front->titles[0]
                       : front->certs[0].name_count ? front->certs[0].names[0]
                                                    : NULL;
    const struct name *name = text ? find(front, text) : NULL;
    uint32_t index;
    if (name)
        index = name->group;
    else if (!group_of(front, &alone, &index))
        return false;
    struct group first = front->groups[0];
    front->groups[0] = front->groups[index];
    front->groups[index] = first;
    for (size_t i = 0; i < front->name_count; i++) {
        uint32_t *group = &front->names[i].group;
        *group = *group == 0 ? index : *group == index ? 0 : *group;
    }
    return true;
}

static void set_clients(struct making *making, SSL_CTX *ctx)
{
    static const int modes[] = {
        [TLS_CLIENT_NONE] = SSL_VERIFY_NONE,
        [TLS_CLIENT_REQUEST] = SSL_VERIFY_PEER,
        [TLS_CLIENT_REQUIRE] = SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
    };
    SSL_CTX_set_verify(ctx, modes[making->spec->client_auth], NULL);
    if (making->spec->client_auth == TLS_CLIENT_NONE)
        return;
    SSL_CTX_set1_cert_store(ctx, making->authorities);
    STACK_OF(X509_NAME) *names = SSL_dup_CA_list(making->authority_names);
    if (names)
        SSL_CTX_set_client_CA_list(ctx, names);
    else
        no_memory(making);
}

static void set_ciphers(struct making *making, SSL_CTX *ctx)
{
    const struct tls_front_spec *spec = making->spec;
    if (!SSL_CTX_set_cipher_list(ctx, spec->ciphers ? spec->ciphers : TLS_CIPHERS) ||
        !SSL_CTX_set_ciphersuites(ctx,
                                  spec->ciphersuites ? spec->ciphersuites : TLS_CIPHERSUITES) ||
        !SSL_CTX_set1_groups_list(ctx, GROUPS))
        no_memory(making); /* their names were checked before */
}

static SSL_CTX *make_context(struct making *making, const struct group *group)
{
    const struct tls_front_spec *spec = making->spec;
    struct tls_front *front = making->front;
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (!ctx || !tls_context_setup(ctx)) {
        SSL_CTX_free(ctx);
        no_memory(making);
        return NULL;
    }
    SSL_CTX_set_min_proto_version(ctx, spec->tls13_only ? TLS1_3_VERSION : TLS1_2_VERSION);
    SSL_CTX_set_options(ctx, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_session_id_context(ctx, making->session_context,
                                   sizeof(making->session_context));
    SSL_CTX_set_timeout(ctx, TLS_SESSION_S);
    SSL_CTX_set_tlsext_servername_callback(ctx, on_servername);
    SSL_CTX_set_tlsext_servername_arg(ctx, front);
    SSL_CTX_set_alpn_select_cb(ctx, on_alpn, front);
    SSL_CTX_set_tlsext_status_cb(ctx, on_status);
    SSL_CTX_set_tlsext_status_arg(ctx, front);
    SSL_CTX_set_tlsext_ticket_key_evp_cb(ctx, on_ticket);
    /* Whoever has seen early data can send it again, to any worker and any gateway that shares
     * the keys; what is done with it has to bear that. OpenSSL's own remedy is a cache. */
    SSL_CTX_set_options(ctx, SSL_OP_NO_ANTI_REPLAY);
    SSL_CTX_set_max_early_data(ctx, spec->early_data ? TLS_EARLY_DATA : 0);
    SSL_CTX_set_recv_max_early_data(ctx, spec->early_data ? TLS_EARLY_DATA : 0);
    set_ciphers(making, ctx);
    set_clients(making, ctx);
    for (uint32_t i = 0; i < group->count; i++) {
        if (tls_cert_use(&front->certs[group->certs[i]], ctx))
            continue;
        const char *words = tls_complaint();
        fault(making, (int)group->certs[i], "chain", words);
    }
    return ctx;
}

/* OpenSSL steps over names it does not know: each is asked for alone. */
static void check_ciphers(struct making *making, SSL_CTX *ctx, const char *option,
                          const char *list)
{
    for (const char *p = list, *end; p; p = *end ? end + 1 : NULL) {
        end = strchr(p, ':');
        if (!end)
            end = p + strlen(p);
        char word[96], text[256];
        snprintf(word, sizeof(word), "%.*s", (int)(end - p), p);
        bool suites = strcmp(option, "ciphersuites") == 0;
        const char *name = word + strspn(word, suites ? "" : "!-+");
        bool known = *name && (suites ? SSL_CTX_set_ciphersuites(ctx, name)
                                      : SSL_CTX_set_cipher_list(ctx, name)) == 1;
        ERR_clear_error();
        if (known || (!suites && (strncmp(name, "@STRENGTH", 9) == 0)))
            continue;
        snprintf(text, sizeof(text), "names \"%s\", which OpenSSL does not know", word);
        fault(making, -1, option, text);
    }
}

static void check_options(struct making *making)
{
    const struct tls_front_spec *spec = making->spec;
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (!ctx) {
        no_memory(making);
        return;
    }
    if (spec->ciphers)
        check_ciphers(making, ctx, "ciphers", spec->ciphers);
    if (spec->ciphersuites)
        check_ciphers(making, ctx, "ciphersuites", spec->ciphersuites);
    SSL_CTX_free(ctx);
    if (spec->client_auth != TLS_CLIENT_NONE) {
        const char *wrong =
            tls_cert_authorities(spec->client_ca, making->authorities, making->authority_names);
        if (wrong)
            fault(making, -1, "client_ca", wrong);
    }
    size_t n = spec->ticket_keys.n;
    if (spec->ticket_keys.p &&
        (n == 0 || n % TLS_TICKET_KEY || n / TLS_TICKET_KEY > TLS_TICKET_KEYS))
        fault(making, -1, "ticket_keys",
              "has another size than 80, 160, ... up to 1280 bytes: 1 to 16 keys of 80 random "
              "bytes, the first seals");
}

/* A session is taken only where it was begun: by a listener of that name, under the same
 * demand for clients' certificates. */
static void make_session_context(struct making *making)
{
    const struct tls_front_spec *spec = making->spec;
    unsigned char parts[3][SHA256_DIGEST_LENGTH] = {{(unsigned char)spec->client_auth}};
    SHA256((const unsigned char *)spec->name, strlen(spec->name), parts[1]);
    if (spec->client_auth != TLS_CLIENT_NONE)
        SHA256((const unsigned char *)spec->client_ca.p, spec->client_ca.n, parts[2]);
    SHA256(parts[0], sizeof(parts), making->session_context);
}

static bool make_tickets(struct making *making)
{
    const struct tls_front_spec *spec = making->spec;
    const struct tls_front *before = spec->before;
    struct tls_front *front = making->front;
    if (spec->ticket_keys.p)
        front->tickets = tls_tickets_from(spec->ticket_keys);
    else if (before && tls_tickets_are_own(before->tickets))
        front->tickets = tls_tickets_ref(before->tickets);
    else
        front->tickets = tls_tickets_new();
    return front->tickets != NULL;
}

static void make_all(struct making *making)
{
    struct tls_front *front = making->front;
    read_certificates(making);
    check_options(making);
    if (making->faults)
        return;
    check_titles(making);
    if (making->faults)
        return;
    make_session_context(making);
    if (!make_names(front) || !make_default(front) || !make_tickets(making)) {
        no_memory(making);
        return;
    }
    for (size_t i = 0; i < front->group_count && !making->faults; i++)
        front->groups[i].ctx = make_context(making, &front->groups[i]);
}

struct tls_front *tls_front_new(const struct tls_front_spec *spec,
                                void (*on_fault)(void *arg, const struct tls_fault *fault),
                                void *arg)
{
    assert(spec->count);
    struct tls_front *front = mem_zalloc(sizeof(*front));
    struct making making = {
        .spec = spec,
        .front = front,
        .on_fault = on_fault,
        .arg = arg,
        .authorities = X509_STORE_new(),
        .authority_names = sk_X509_NAME_new_null(),
    };
    if (front) {
        atomic_init(&front->refs, 1);
        front->http2 = spec->http2;
        front->early_data = spec->early_data;
        front->certs = mem_zalloc(spec->count * sizeof(*front->certs));
        front->titles = mem_zalloc(spec->count * sizeof(*front->titles));
    }
    if (!front || !front->certs || !front->titles || !making.authorities ||
        !making.authority_names)
        no_memory(&making);
    else
        make_all(&making);
    X509_STORE_free(making.authorities);
    sk_X509_NAME_pop_free(making.authority_names, X509_NAME_free);
    if (!making.faults)
        return front;
    tls_front_unref(front);
    return NULL;
}

struct tls_front *tls_front_ref(struct tls_front *front)
{
    atomic_fetch_add_explicit(&front->refs, 1, memory_order_relaxed);
    return front;
}

void tls_front_unref(struct tls_front *front)
{
    if (!front || atomic_fetch_sub_explicit(&front->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < front->group_count; i++)
        SSL_CTX_free(front->groups[i].ctx);
    mem_free(front->groups);
    mem_free(front->names);
    for (size_t i = 0; i < front->cert_count; i++) {
        tls_cert_done(&front->certs[i]);
        free(front->titles[i]);
    }
    mem_free(front->certs);
    mem_free(front->titles);
    tls_tickets_unref(front->tickets);
    mem_free(front);
}

SSL_CTX *tls_front_context(struct tls_front *front)
{
    return front->groups[0].ctx;
}

bool tls_front_takes_early(const struct tls_front *front)
{
    return front->early_data;
}

time_t tls_front_start(const struct tls_front *front, size_t i)
{
    return front->certs[i].from;
}

const char *tls_front_kind(const struct tls_front *front, size_t i)
{
    return tls_cert_kind(&front->certs[i]);
}

bool tls_front_has_dates(const struct tls_front *front, time_t from, time_t until)
{
    for (size_t i = 0; i < front->cert_count; i++)
        if (front->certs[i].from == from && front->certs[i].until == until)
            return true;
    return false;
}

time_t tls_front_expiry(const struct tls_front *front, size_t i)
{
    return front->certs[i].until;
}

void tls_front_tick(struct tls_front *front, uint64_t now_ns)
{
    tls_tickets_tick(front->tickets, now_ns);
}
