/* tls of listeners and of upstreams: their options, and the files that they name, which are
 * read here; tls_make.c makes contexts of them. */
#include <arpa/inet.h>
#include <limits.h>
#include <stdlib.h>

#include "conf/load.h"
#include "conf/tls_make.h"
#include "net/tls_front.h"

/* `what` begins messages. */
static void text_compile(struct load *load, cfg_t *sec, const char *name, const char *what,
                         struct conf_text *ret)
{
    const struct value *value = value_get(sec, name);
    if (!value)
        return;
    ret->where = load_where(load, value->line);
    if (!value->text[0])
        return; /* as not given */
    char *path = include_path(load, ret->where.file, str_of(value->text)), absolute[PATH_MAX];
    struct str text;
    if (!path)
        return;
    ret->stamp = tls_stamp_of(path);
    int err = include_read(path, TLS_FILE_MAX, &text);
    ret->path = load_copy(load, str_of(realpath(path, absolute) ? absolute : path));
    if (err) {
        load_fault(load, value->line, "%s.%s: cannot read %s: %s", what, name, path,
                   include_why(err));
        return;
    }
    char *copy = load_copy(load, text);
    if (copy)
        ret->text = (struct str){copy, text.n};
    explicit_bzero((char *)text.p, text.n); /* it may be a key */
    mem_free((char *)text.p);
}

/* ---- listeners ---- */

static void certificate_compile(struct load *load, cfg_t *sec, struct conf_certificate *ret)
{
    static const char *const needed[] = {"chain", "key"};
    int line = value_line(sec);
    ret->where = ret->chain.where = ret->key.where = load_where(load, line);
    ret->name = load_copy(load, str_of(value_title(sec)));
    for (size_t i = 0; i < 2; i++) {
        const struct value *value = value_get(sec, needed[i]);
        if (!load->broken && (!value || !value->text[0]))
            load_fault(load, value ? value->line : line,
                       "certificate \"%s\" has no %s, expected a file in PEM form",
                       value_title(sec), needed[i]);
    }
    text_compile(load, sec, "chain", "certificate", &ret->chain);
    text_compile(load, sec, "key", "certificate", &ret->key);
    text_compile(load, sec, "ocsp", "certificate", &ret->ocsp);
}

static void clients_compile(struct load *load, cfg_t *sec, struct conf_front *ret)
{
    static const char *const words[] = {"none", "request", "require", NULL};
    text_compile(load, sec, "client_ca", "tls", &ret->client_ca);
    /* Who names an authority and says no more wants its certificates to be needed. */
    ret->client_auth = ret->client_ca.path ? TLS_CLIENT_REQUIRE : TLS_CLIENT_NONE;
    value_word(load, sec, "client_auth", words, &ret->client_auth);
    if (ret->client_auth != TLS_CLIENT_NONE && !ret->client_ca.path && !load->broken)
        load_fault(load, value_get(sec, "client_auth")->line,
                   "tls.client_auth is %s without client_ca, expected the certificates of who "
                   "signs clients' ones",
                   words[ret->client_auth]);
}

struct conf_front *tls_front_compile(struct load *load, cfg_t *sec)
{
    static const char *const versions[] = {"1.2", "1.3", NULL};
    struct conf_front *ret = load_alloc(load, 1, sizeof(*ret));
    size_t count = value_count(sec, "certificate");
    if (!ret)
        return NULL;
    ret->where = load_where(load, value_line(sec));
    ret->certificates = load_alloc(load, count, sizeof(*ret->certificates));
    for (size_t i = 0; ret->certificates && i < count; i++)
        certificate_compile(load, cfg_getnsec(sec, "certificate", (unsigned)i),
                            &ret->certificates[ret->count++]);
    if (!count && !load->broken)
        load_fault(load, value_line(sec),
                   "tls has no certificate, expected at least one: certificate "
                   "\"example.com\" { chain = \"example.pem\"  key = \"example.key\" }");
    unsigned version = 0;
    value_word(load, sec, "min_version", versions, &version);
    ret->tls13_only = version == 1;
    value_text_at(load, sec, "ciphers", &ret->ciphers, &ret->ciphers_at);
    value_text_at(load, sec, "ciphersuites", &ret->suites, &ret->suites_at);
    clients_compile(load, sec, ret);
    text_compile(load, sec, "ticket_keys", "tls", &ret->ticket_keys);
    value_bool(load, sec, "early_data", &ret->early_data);
    ret->stamp = tls_stamp(ret, true);
    return ret;
}

/* ---- upstreams ---- */

/* A host name or an IP address, without a port. */
static bool is_host(const char *text)
{
    unsigned char addr[sizeof(struct in6_addr)];
    size_t n = strlen(text);
    if (inet_pton(AF_INET6, text, addr) == 1)
        return true;
    return n >= 1 && n <= 253 &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789-._") == n;
}

static void name_compile(struct load *load, cfg_t *sec, const struct conf_upstream *upstream,
                         struct conf_back *ret)
{
    const struct value *value = value_get(sec, "server_name");
    if (value && value->text[0]) {
        ret->server_name = load_copy(load, str_of(value->text));
        if (!is_host(value->text))
            load_fault(load, value->line,
                       "tls.server_name is \"%s\", expected a host name or an IP address",
                       value->text);
        return;
    }
    for (size_t i = 0; ret->verify && i < upstream->server_count; i++)
        if (upstream->servers[i].text && strncmp(upstream->servers[i].text, "unix:", 5) == 0)
            load_fault(load, value_line(sec),
                       "tls has no server_name, expected the name in the certificate of server "
                       "\"%s\", or verify = false",
                       upstream->servers[i].text);
}

struct conf_back *tls_back_compile(struct load *load, cfg_t *sec,
                                   const struct conf_upstream *upstream)
{
    struct conf_back *ret = load_alloc(load, 1, sizeof(*ret));
    if (!ret)
        return NULL;
    ret->where = load_where(load, value_line(sec));
    ret->verify = true;
    value_bool(load, sec, "verify", &ret->verify);
    name_compile(load, sec, upstream, ret);
    text_compile(load, sec, "ca", "tls", &ret->ca);
    text_compile(load, sec, "certificate", "tls", &ret->certificate);
    text_compile(load, sec, "key", "tls", &ret->key);
    if (!ret->certificate.path != !ret->key.path && !load->broken)
        load_fault(load, value_line(sec), "tls has a %s without a %s, expected both or neither",
                   ret->key.path ? "key" : "certificate",
                   ret->key.path ? "certificate" : "key");
    return ret;
}

/* ---- -T ---- */

void tls_front_put(const struct conf_front *tls, FILE *out)
{
    static const char *const modes[] = {"none", "request", "require"};
    fputs("  tls {\n", out);
    for (size_t i = 0; i < tls->count; i++) {
        const struct conf_certificate *certificate = &tls->certificates[i];
        dump_title(out, "    ", "certificate", certificate->name);
        dump_option(out, "      chain", certificate->chain.path);
        dump_option(out, "      key", certificate->key.path);
        dump_option(out, "      ocsp", certificate->ocsp.path);
        fputs("    }\n", out);
    }
    dump_option(out, "    min_version", tls->tls13_only ? "1.3" : "1.2");
    dump_option(out, "    ciphers", tls->ciphers ? tls->ciphers : TLS_CIPHERS);
    dump_option(out, "    ciphersuites", tls->suites ? tls->suites : TLS_CIPHERSUITES);
    dump_option(out, "    client_ca", tls->client_ca.path);
    fprintf(out, "    client_auth = %s\n", modes[tls->client_auth]);
    dump_option(out, "    ticket_keys", tls->ticket_keys.path);
    fprintf(out, "    early_data = %s\n", tls->early_data ? "true" : "false");
    fputs("  }\n", out);
}

void tls_back_put(const struct conf_back *tls, FILE *out)
{
    fputs("  tls {\n", out);
    dump_option(out, "    ca", tls->ca.path);
    fprintf(out, "    verify = %s\n", tls->verify ? "true" : "false");
    dump_option(out, "    server_name", tls->server_name);
    dump_option(out, "    certificate", tls->certificate.path);
    dump_option(out, "    key", tls->key.path);
    fputs("  }\n", out);
}
