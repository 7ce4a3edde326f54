/* What a section allows and denies, and whether somebody may pass.
 *
 * Five kinds of rules: address, subject (of the client's certificate), method, consumer, scope.
 * A kind that is allowed nothing explicitly allows what it does not deny; else only what it
 * allows. All five must be content. Made once, then immutable. Any thread. */
#ifndef POSTERN_ACCESS_ACCESS_RULES_H
#define POSTERN_ACCESS_ACCESS_RULES_H

#include "access_ranges.h"
#include "postern_plugin.h"

enum access_kind {
    ACCESS_ADDRESS,
    ACCESS_SUBJECT,
    ACCESS_METHOD,
    ACCESS_CONSUMER,
    ACCESS_SCOPE,
    ACCESS_KINDS
};

struct access_rules;

struct access_rules *access_rules_new(void); /* NULL: no memory */
void access_rules_free(struct access_rules *rules);

/* Adds a rule as it stands in the configuration. NULL, or what was expected instead.
 * *ret_warning is set when it means less than it says. */
const char *access_rules_add(struct access_rules *rules, enum access_verdict verdict,
                             const char *text, const char **ret_warning);
/* When all are there. False: no memory. */
bool access_rules_finish(struct access_rules *rules);

struct access_who {
    uint8_t address[16];
    unsigned address_width; /* 0: a unix-domain peer */
    struct postern_str method;
    struct postern_str consumer, scope, subject; /* .p NULL: none */
};

enum access_result {
    ACCESS_PASS,
    ACCESS_REFUSED,
    ACCESS_UNIDENTIFIED, /* a consumer or scope is needed, and nobody said who they are */
};

/* *ret_kind: which kind of rule refused. */
enum access_result access_rules_check(const struct access_rules *rules,
                                      const struct access_who *who, enum access_kind *ret_kind);
/* The scopes that a request may need, as RFC 6750 3 wants them told; NULL: none. */
const char *access_rules_scope(const struct access_rules *rules);
bool access_rules_need(const struct access_rules *rules, enum access_kind kind);

#endif
