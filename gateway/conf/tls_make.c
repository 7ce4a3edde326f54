#include "conf/tls_make.h"

#include <sys/stat.h>

#include "base/clock.h"
#include "conf/load.h"

/* Files that were read anew, until the context is made. */
struct texts {
    struct str *list;
    size_t count;
    bool anew;
    struct conf_faults *faults;
};

static struct str text_of(struct texts *texts, const struct conf_text *file)
{
    struct str text;
    if (!texts->anew || !file->path || !texts->list)
        return file->text;
    int err = include_read(file->path, TLS_FILE_MAX, &text);
    if (err) {
        conf_fault(texts->faults, file->where, "cannot read %s: %s", file->path,
                   include_why(err));
        return (struct str){"", 0};
    }
    texts->list[texts->count++] = text;
    return text;
}

static void texts_wipe(struct texts *texts)
{
    for (size_t i = 0; i < texts->count; i++) {
        explicit_bzero((char *)texts->list[i].p, texts->list[i].n);
        mem_free((char *)texts->list[i].p);
    }
}

static void texts_done(struct texts *texts)
{
    texts_wipe(texts);
    mem_free(texts->list);
}

/* ---- listeners ---- */

struct front_faults {
    const struct conf_front *tls;
    struct conf_faults *faults;
};

static bool is(const struct tls_fault *fault, const char *option)
{
    return fault->option && strcmp(fault->option, option) == 0;
}

static void on_certificate_fault(const struct front_faults *to, const struct tls_fault *fault)
{
    const struct conf_certificate *certificate = &to->tls->certificates[fault->certificate];
    const struct conf_text *file = is(fault, "chain")  ? &certificate->chain
                                   : is(fault, "key")  ? &certificate->key
                                   : is(fault, "ocsp") ? &certificate->ocsp
                                                       : NULL;
    if (file)
        conf_fault(to->faults, file->where, "certificate \"%s\": %s %s %s", certificate->name,
                   fault->option, file->path, fault->text);
    else
        conf_fault(to->faults, certificate->where, "certificate \"%s\" %s", certificate->name,
                   fault->text);
}

static void on_front_fault(void *arg, const struct tls_fault *fault)
{
    const struct front_faults *to = arg;
    const struct conf_front *tls = to->tls;
    if (fault->certificate >= 0)
        on_certificate_fault(to, fault);
    else if (is(fault, "ciphers"))
        conf_fault(to->faults, tls->ciphers_at, "tls.ciphers %s", fault->text);
    else if (is(fault, "ciphersuites"))
        conf_fault(to->faults, tls->suites_at, "tls.ciphersuites %s", fault->text);
    else if (is(fault, "client_ca"))
        conf_fault(to->faults, tls->client_ca.where, "tls.client_ca %s %s", tls->client_ca.path,
                   fault->text);
    else if (is(fault, "ticket_keys"))
        conf_fault(to->faults, tls->ticket_keys.where, "tls.ticket_keys %s %s",
                   tls->ticket_keys.path, fault->text);
    else
        conf_fault(to->faults, tls->where, "tls: %s", fault->text);
}

struct tls_front *tls_make_front(const struct conf_listener *listener, bool anew,
                                 const struct tls_front *before, struct conf_faults *faults)
{
    const struct conf_front *tls = listener->tls;
    struct texts texts = {.anew = anew, .faults = faults};
    struct front_faults to = {tls, faults};
    struct tls_certificate *certificates = mem_alloc(tls->count * sizeof(*certificates));
    texts.list = mem_alloc((3 * tls->count + 2) * sizeof(*texts.list));
    size_t had = faults->count;
    struct tls_front *front = NULL;
    bool memory = certificates && texts.list;
    if (!memory)
        conf_fault(faults, tls->where, "out of memory");
    for (size_t i = 0; memory && i < tls->count; i++) {
        const struct conf_certificate *from = &tls->certificates[i];
        certificates[i].name = from->name;
        certificates[i].chain = text_of(&texts, &from->chain);
        certificates[i].key = text_of(&texts, &from->key);
        certificates[i].ocsp = text_of(&texts, &from->ocsp);
    }
    if (memory && faults->count == had) {
        struct tls_front_spec spec = {
            .name = listener->name,
            .certificates = certificates,
            .count = tls->count,
            .tls13_only = tls->tls13_only,
            .early_data = tls->early_data,
            .ciphers = tls->ciphers,
            .ciphersuites = tls->suites,
            .client_auth = (enum tls_client_auth)tls->client_auth,
            .client_ca = text_of(&texts, &tls->client_ca),
            .ticket_keys = text_of(&texts, &tls->ticket_keys),
            .http2 = listener->http2,
            .before = before,
        };
        if (faults->count == had)
            front = tls_front_new(&spec, on_front_fault, &to);
    }
    texts_done(&texts);
    mem_free(certificates);
    return front;
}

void tls_check_dates(const struct conf_listener *listener, const struct tls_front *front,
                     const struct tls_front *before, time_t now, struct conf_faults *faults,
                     struct conf_faults *known)
{
    for (size_t i = 0; i < listener->tls->count; i++) {
        const struct conf_certificate *certificate = &listener->tls->certificates[i];
        time_t from = tls_front_start(front, i), until = tls_front_expiry(front, i);
        if (now >= from && now <= until)
            continue;
        char text[CLOCK_ISO_LEN];
        clock_put_iso(text, (uint64_t)(now > until ? until : from) * 1000);
        bool was = before && tls_front_has_dates(before, from, until);
        conf_fault(was ? known : faults, certificate->chain.where,
                   "certificate \"%s\": %s %s on %.10s", certificate->name,
                   certificate->chain.path, now > until ? "expired" : "is not valid before",
                   text);
    }
}

/* FNV-1a over words: nobody gains by two stamps that are the same. */
static uint64_t stamp_add(uint64_t stamp, uint64_t word)
{
    for (int i = 0; i < 8; i++, word >>= 8)
        stamp = (stamp ^ (word & 0xff)) * 0x100000001b3ull;
    return stamp;
}

uint64_t tls_stamp_of(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return 0;
    uint64_t stamp = stamp_add(0xcbf29ce484222325ull, st.st_ino);
    stamp = stamp_add(stamp, (uint64_t)st.st_size);
    stamp = stamp_add(stamp, (uint64_t)st.st_mtim.tv_sec);
    return stamp_add(stamp, (uint64_t)st.st_mtim.tv_nsec);
}

static uint64_t stamp_file(uint64_t stamp, const struct conf_text *file, bool was)
{
    return file->path ? stamp_add(stamp, was ? file->stamp : tls_stamp_of(file->path)) : stamp;
}

uint64_t tls_stamp(const struct conf_front *tls, bool were)
{
    uint64_t stamp = 1;
    for (size_t i = 0; i < tls->count; i++) {
        stamp = stamp_file(stamp, &tls->certificates[i].chain, were);
        stamp = stamp_file(stamp, &tls->certificates[i].key, were);
        stamp = stamp_file(stamp, &tls->certificates[i].ocsp, were);
    }
    stamp = stamp_file(stamp, &tls->client_ca, were);
    return stamp_file(stamp, &tls->ticket_keys, were);
}

/* ---- upstreams ---- */

struct back_faults {
    const struct conf_upstream *upstream;
    struct conf_faults *faults;
};

static void on_back_fault(void *arg, const struct tls_back_fault *fault)
{
    const struct back_faults *to = arg;
    const struct conf_back *tls = to->upstream->tls;
    const char *option = fault->option;
    if (!option) {
        conf_fault(to->faults, tls->where, "tls of upstream \"%s\": %s", to->upstream->name,
                   fault->text);
        return;
    }
    const struct conf_text *file = strcmp(option, "ca") == 0    ? &tls->ca
                                   : strcmp(option, "key") == 0 ? &tls->key
                                                                : &tls->certificate;
    conf_fault(to->faults, file->path ? file->where : tls->where, "tls.%s %s%s%s", option,
               file->path ? file->path : "", file->path ? " " : "", fault->text);
}

struct tls_back *tls_make_back(const struct conf_upstream *upstream, bool anew,
                               struct conf_faults *faults)
{
    const struct conf_back *tls = upstream->tls;
    struct back_faults to = {upstream, faults};
    struct str files[3];
    struct texts texts = {.list = files, .anew = anew, .faults = faults};
    size_t had = faults->count;
    struct tls_back_spec spec = {
        .ca = text_of(&texts, &tls->ca),
        .verify = tls->verify,
        .chain = text_of(&texts, &tls->certificate),
        .key = text_of(&texts, &tls->key),
        .http2 = upstream->http2,
    };
    struct tls_back *back =
        faults->count == had ? tls_back_new(&spec, on_back_fault, &to) : NULL;
    texts_wipe(&texts);
    return back;
}

uint64_t tls_back_stamp(const struct conf_back *tls, bool were)
{
    uint64_t stamp = stamp_file(1, &tls->ca, were);
    return stamp_file(stamp_file(stamp, &tls->certificate, were), &tls->key, were);
}

static void forget(const struct conf_text *file)
{
    if (file->text.p)
        explicit_bzero((char *)file->text.p, file->text.n);
}

void tls_forget(struct conf *conf)
{
    for (size_t i = 0; i < conf->listener_count; i++) {
        const struct conf_front *tls = conf->listeners[i].tls;
        for (size_t k = 0; tls && k < tls->count; k++)
            forget(&tls->certificates[k].key);
        if (tls)
            forget(&tls->ticket_keys);
    }
    for (size_t i = 0; i < conf->upstream_count; i++)
        if (conf->upstreams[i].tls)
            forget(&conf->upstreams[i].tls->key);
}
