#include "net/tls_cert.h"

#include <openssl/err.h>
#include <openssl/ocsp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "base/mem.h"
#include "net/tls_parts.h"

#define NO_MEMORY "cannot be kept: out of memory"

static BIO *bio_of(struct str text)
{
    return BIO_new_mem_buf(text.n ? text.p : "", text.n > INT32_MAX ? INT32_MAX : (int)text.n);
}

/* A key behind a password is refused rather than asked for. */
static int on_password(char *out, int size, int writing, void *asked)
{
    (void)out, (void)size, (void)writing;
    *(bool *)asked = true;
    return -1;
}

static time_t time_of(const ASN1_TIME *time)
{
    struct tm tm;
    return time && ASN1_TIME_to_tm(time, &tm) ? timegm(&tm) : 0;
}

/* ---- names ---- */

static bool add_name(struct tls_cert *cert, const ASN1_STRING *string)
{
    const char *p = (const char *)ASN1_STRING_get0_data(string);
    int n = ASN1_STRING_length(string);
    if (n <= 0 || n > 253 || memchr(p, '\0', (size_t)n))
        return true; /* nobody can ask for it */
    char **names = mem_realloc(cert->names, (cert->name_count + 1) * sizeof(*names));
    if (!names)
        return false;
    cert->names = names;
    char *name = mem_alloc((size_t)n + 1);
    if (!name)
        return false;
    for (int i = 0; i < n; i++)
        name[i] = ascii_lower(p[i]);
    name[n] = '\0';
    names[cert->name_count++] = name;
    return true;
}

/* The names of subjectAltName; only without any, the common name (RFC 6125 6.4.4). */
static bool read_names(struct tls_cert *cert)
{
    GENERAL_NAMES *list = X509_get_ext_d2i(cert->leaf, NID_subject_alt_name, NULL, NULL);
    bool ok = true;
    for (int i = 0; ok && i < sk_GENERAL_NAME_num(list); i++) {
        int type;
        const ASN1_STRING *string =
            GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(list, i), &type);
        if (type == GEN_DNS)
            ok = add_name(cert, string);
    }
    GENERAL_NAMES_free(list);
    if (!ok || cert->name_count)
        return ok;
    const X509_NAME *subject = X509_get_subject_name(cert->leaf);
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    return at < 0 || add_name(cert, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
}

/* ---- files ---- */

static const char *check_chain(struct tls_cert *cert)
{
    X509 *below = cert->leaf;
    for (int i = 0; i < sk_X509_num(cert->chain); i++) {
        X509 *above = sk_X509_value(cert->chain, i);
        if (X509_check_issued(above, below) != X509_V_OK)
            return "has certificates out of order: each must be signed by the next, the "
                   "server's own first";
        below = above;
    }
    return NULL;
}

const char *tls_cert_chain(struct tls_cert *cert, struct str pem)
{
    BIO *bio = bio_of(pem);
    X509 *next;
    cert->chain = sk_X509_new_null();
    cert->leaf = bio ? PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL) : NULL;
    while (cert->leaf && cert->chain && (next = PEM_read_bio_X509(bio, NULL, NULL, NULL)))
        if (!sk_X509_push(cert->chain, next))
            X509_free(next);
    /* Behind the last certificate there is no further beginning of one. */
    bool whole = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    BIO_free(bio);
    ERR_clear_error();
    if (!bio || !cert->chain)
        return NO_MEMORY;
    if (!cert->leaf)
        return "holds no certificate, expected PEM (-----BEGIN CERTIFICATE-----)";
    if (!whole)
        return "is damaged behind its first certificate";
    cert->from = time_of(X509_get0_notBefore(cert->leaf));
    cert->until = time_of(X509_get0_notAfter(cert->leaf));
    return read_names(cert) ? check_chain(cert) : NO_MEMORY;
}

const char *tls_cert_key(struct tls_cert *cert, struct str pem)
{
    bool asked = false;
    BIO *bio = bio_of(pem);
    if (bio)
        cert->key = PEM_read_bio_PrivateKey(bio, NULL, on_password, &asked);
    BIO_free(bio);
    ERR_clear_error();
    if (!bio)
        return NO_MEMORY;
    if (asked)
        return "is protected by a password, expected a key without one";
    if (!cert->key)
        return "holds no private key, expected PEM (-----BEGIN PRIVATE KEY-----)";
    if (!cert->leaf)
        return NULL; /* that is reported already */
    bool fits = X509_check_private_key(cert->leaf, cert->key) == 1;
    ERR_clear_error();
    return fits ? NULL : "does not fit the certificate: it belongs to another one";
}

/* Whether that is what a response calls a certificate of its serial number and its issuer's
 * name; the issuer's key is not known. */
static bool names(const X509 *leaf, const OCSP_CERTID *id)
{
    ASN1_OBJECT *algorithm;
    ASN1_OCTET_STRING *name;
    ASN1_INTEGER *serial;
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (OCSP_id_get0_info(&name, &algorithm, NULL, &serial, (OCSP_CERTID *)id) != 1 ||
        ASN1_INTEGER_cmp(serial, X509_get0_serialNumber(leaf)) != 0)
        return false;
    const EVP_MD *digest = EVP_get_digestbyobj(algorithm);
    return digest && X509_NAME_digest(X509_get_issuer_name(leaf), digest, hash, &n) == 1 &&
           (int)n == ASN1_STRING_length(name) &&
           memcmp(hash, ASN1_STRING_get0_data(name), n) == 0;
}

static OCSP_SINGLERESP *find_status(const X509 *leaf, OCSP_BASICRESP *basic)
{
    for (int i = 0; i < OCSP_resp_count(basic); i++) {
        OCSP_SINGLERESP *single = OCSP_resp_get0(basic, i);
        if (names(leaf, OCSP_SINGLERESP_get0_id(single)))
            return single;
    }
    return NULL;
}

/* Whether the response speaks of this certificate, and until when. */
static const char *read_status(struct tls_cert *cert, OCSP_BASICRESP *basic)
{
    X509 *issuer = sk_X509_value(cert->chain, 0);
    OCSP_CERTID *id = issuer ? OCSP_cert_to_id(NULL, cert->leaf, issuer) : NULL;
    ASN1_GENERALIZEDTIME *until = NULL;
    int status = V_OCSP_CERTSTATUS_GOOD;
    bool found;
    if (id) {
        found = OCSP_resp_find_status(basic, id, &status, NULL, NULL, NULL, &until) == 1;
    } else {
        OCSP_SINGLERESP *single = find_status(cert->leaf, basic);
        found = single != NULL;
        if (single)
            status = OCSP_single_get0_status(single, NULL, NULL, NULL, &until);
    }
    OCSP_CERTID_free(id);
    if (!found)
        return "is about another certificate";
    if (status != V_OCSP_CERTSTATUS_GOOD)
        return "does not say that the certificate is good";
    cert->ocsp_until = until ? time_of(until) : 0;
    if (cert->ocsp_until && cert->ocsp_until < time(NULL))
        return "is out of date";
    return NULL;
}

const char *tls_cert_ocsp(struct tls_cert *cert, struct str der)
{
    const unsigned char *p = (const unsigned char *)der.p;
    if (!cert->leaf)
        return NULL; /* that is reported already */
    OCSP_RESPONSE *response = d2i_OCSP_RESPONSE(NULL, &p, (long)der.n);
    OCSP_BASICRESP *basic = NULL;
    if (response && OCSP_response_status(response) == OCSP_RESPONSE_STATUS_SUCCESSFUL)
        basic = OCSP_response_get1_basic(response);
    const char *fault = basic ? read_status(cert, basic)
                              : "holds no OCSP response, expected DER of a successful one";
    OCSP_BASICRESP_free(basic);
    OCSP_RESPONSE_free(response);
    ERR_clear_error();
    if (fault)
        return fault;
    cert->ocsp = mem_alloc(der.n);
    if (!cert->ocsp)
        return NO_MEMORY;
    memcpy(cert->ocsp, der.p, der.n);
    cert->ocsp_len = (int)der.n;
    return NULL;
}

void tls_cert_done(struct tls_cert *cert)
{
    X509_free(cert->leaf);
    sk_X509_pop_free(cert->chain, X509_free);
    EVP_PKEY_free(cert->key);
    for (size_t i = 0; i < cert->name_count; i++)
        mem_free(cert->names[i]);
    mem_free(cert->names);
    mem_free(cert->ocsp);
    *cert = (struct tls_cert){0};
}

bool tls_cert_use(const struct tls_cert *cert, SSL_CTX *ctx)
{
    return SSL_CTX_use_cert_and_key(ctx, cert->leaf, cert->key, cert->chain, 1) == 1;
}

const char *tls_cert_kind(const struct tls_cert *cert)
{
    switch (EVP_PKEY_get_base_id(cert->key)) {
    case EVP_PKEY_RSA:
        return "RSA";
    case EVP_PKEY_RSA_PSS:
        return "RSA-PSS";
    case EVP_PKEY_EC:
        return "ECDSA";
    case EVP_PKEY_ED25519:
        return "Ed25519";
    default:
        return "other";
    }
}

const char *tls_cert_authorities(struct str pem, X509_STORE *store, STACK_OF(X509_NAME) * names)
{
    BIO *bio = bio_of(pem);
    X509 *next;
    size_t count = 0;
    bool ok = bio != NULL;
    while (ok && (next = PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL))) {
        X509_NAME *name = names ? X509_NAME_dup(X509_get_subject_name(next)) : NULL;
        ok = X509_STORE_add_cert(store, next) == 1;
        if (ok && names && (!name || !sk_X509_NAME_push(names, name)))
            ok = false;
        if (!ok)
            X509_NAME_free(name);
        X509_free(next);
        count++;
    }
    bool whole = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    BIO_free(bio);
    ERR_clear_error();
    return !ok      ? NO_MEMORY
           : !count ? "holds no certificate, expected PEM (-----BEGIN CERTIFICATE-----)"
           : !whole ? "is damaged behind its first certificates"
                    : NULL;
}
